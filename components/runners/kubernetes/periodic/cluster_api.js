'use strict'
// Asks the API of the cluster that the program runs in, as its account.
const { readFileSync } = require('fs')
const https = require('https')

const ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount'
const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = process.env

function call(method, path, body) {
  const content = Buffer.from(body ? JSON.stringify(body) : '')
  const options = {
    host,
    port,
    method,
    path,
    ca: readFileSync(`${ACCOUNT}/ca.crt`),
    headers: {
      Authorization: `Bearer ${readFileSync(`${ACCOUNT}/token`)}`,
      'Content-Type': method === 'PATCH' ? 'application/merge-patch+json' : 'application/json',
      'Content-Length': content.length // Node.js sets none for DELETE
    },
    timeout: 20000
  }
  return new Promise((resolve, reject) => {
    const request = https.request(options, response => {
      let text = ''
      response.on('data', part => (text += part))
      response.on('error', reject)
      response.on('end', () => {
        if (response.statusCode < 300) return resolve(JSON.parse(text))
        const error = new Error(`${method} ${path}: ${response.statusCode} ${text}`)
        reject(Object.assign(error, { status: response.statusCode }))
      })
    })
    request.on('timeout', () => request.destroy(new Error(`${method} ${path}: no answer`)))
    request.on('error', reject)
    request.end(content)
  })
}

