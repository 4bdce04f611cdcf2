'use strict'
// Ends the pods of jobs whose runner is gone. No pod can be the owner of one in another namespace, so nothing else does.
const { readFileSync } = require('fs')
const https = require('https')

const ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount'
const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port, RUNNERS, JOBS } = process.env

function call(method, path, body) {
  const content = Buffer.from(body ? JSON.stringify(body) : '')
  const options = {
    host,
    port,
    method,
    path: `/api/v1/namespaces/${path}`,
    ca: readFileSync(`${ACCOUNT}/ca.crt`),
    headers: {
      Authorization: `Bearer ${readFileSync(`${ACCOUNT}/token`)}`,
      'Content-Type': 'application/json',
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
        // 404 and 409: it has ended meanwhile, or is another one of that name.
        if (response.statusCode < 300) resolve(JSON.parse(text))
        else if (method === 'DELETE' && [404, 409].includes(response.statusCode)) resolve()
        else reject(new Error(`${method} ${path}: ${response.statusCode} ${text}`))
      })
    })
    request.on('timeout', () => request.destroy(new Error(`${method} ${path}: no answer`)))
    request.on('error', reject)
    request.end(content)
  })
}

async function sweep() {
  // First the jobs: a runner is there before its job's pod, and ends after it.
  const jobs = (await call('GET', `${JOBS}/pods?labelSelector=runner-pod`)).items
  const runners = new Map((await call('GET', `${RUNNERS}/pods`)).items.map(pod => [pod.metadata.name, pod]))
  for (const { metadata } of jobs) {
    const runner = runners.get(metadata.labels['runner-pod'])
    const works = runner && !['Succeeded', 'Failed'].includes(runner.status.phase)
    // ARC may start another pod of the runner's name, which knows nothing of this job.
    if (works && runner.metadata.creationTimestamp <= metadata.creationTimestamp) continue
    console.log(`${metadata.name}: its runner ${metadata.labels['runner-pod']} is gone`)
    await call('DELETE', `${JOBS}/pods/${metadata.name}`, {
      apiVersion: 'v1',
      kind: 'DeleteOptions',
      preconditions: { uid: metadata.uid }
    })
  }
}

sweep().catch(error => {
  console.error(error.message)
  process.exit(1)
})
