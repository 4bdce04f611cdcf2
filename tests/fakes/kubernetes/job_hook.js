// A stand-in for GitHub's hook (runner-container-hooks v0.8.1, packages/k8s), without the steps: it checks its rights, makes a
// job's pod of the job's container and the template, waits until it runs, and deletes it. What it adds and what a
// template replaces is as there: src/hooks/prepare-job.ts:185-268, src/k8s/index.ts:64-205, src/k8s/utils.ts:206-256.
'use strict'
const fs = require('fs')
const https = require('https')

const ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount'
const NAMESPACE = process.env.ACTIONS_RUNNER_KUBERNETES_NAMESPACE
const RUNNER = process.env.ACTIONS_RUNNER_POD_NAME
const VOLUMES = { externals: '/__e', work: '/__w', github: '/github' }
const RIGHTS = {
  pods: ['get', 'list', 'create', 'delete'],
  'pods/exec': ['get', 'create'],
  'pods/log': ['get', 'list', 'watch'],
  secrets: ['create', 'delete', 'get', 'list']
}

function call(method, path, body) {
  const options = {
    method,
    host: process.env.KUBERNETES_SERVICE_HOST,
    port: process.env.KUBERNETES_SERVICE_PORT,
    path,
    ca: fs.readFileSync(`${ACCOUNT}/ca.crt`),
    headers: { Authorization: `Bearer ${fs.readFileSync(`${ACCOUNT}/token`)}`, 'Content-Type': 'application/json' }
  }
  return new Promise((resolve, reject) => {
    const request = https.request(options, response => {
      let text = ''
      response.on('data', part => (text += part))
      response.on('end', () => (response.statusCode < 300 ? resolve(JSON.parse(text)) : reject(new Error(text))))
    })
    request.on('error', reject)
    request.end(body && JSON.stringify(body))
  })
}

async function allowed() {
  for (const [name, verbs] of Object.entries(RIGHTS)) {
    const [resource, subresource = ''] = name.split('/')
    for (const verb of verbs) {
      const spec = { resourceAttributes: { verb, namespace: NAMESPACE, group: '', resource, subresource } }
      const review = { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview', spec }
      const { status } = await call('POST', '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', review)
      if (!status.allowed) throw new Error(`The Service account needs ${verb} of ${name} in '${NAMESPACE}'`)
    }
  }
}

const pods = `/api/v1/namespaces/${NAMESPACE}/pods`

async function prune() {
  const { items } = await call('GET', `${pods}?labelSelector=runner-pod%3D${RUNNER}`)
  await Promise.all(items.map(one => call('DELETE', `${pods}/${one.metadata.name}?gracePeriodSeconds=0`)))
}

async function prepare(args, responseFile) {
  await prune()
  const template = JSON.parse(fs.readFileSync(process.env.ACTIONS_RUNNER_CONTAINER_HOOK_TEMPLATE, 'utf8'))
  const mounts = Object.entries(VOLUMES).map(([name, mountPath]) => ({ name, mountPath }))
  const container = {
    name: 'job',
    image: args.container.image,
    workingDir: args.container.workingDirectory,
    command: ['tail'],
    args: ['-f', '/dev/null'],
    env: [{ name: 'GITHUB_ACTIONS', value: 'true' }, { name: 'CI', value: 'true' }],
    volumeMounts: mounts
  }
  const init = {
    name: 'fs-init',
    image: process.env.ACTIONS_RUNNER_IMAGE,
    command: ['sh', '-c', 'mv /home/runner/externals/* /mnt/externals/'],
    securityContext: { runAsGroup: 1001, runAsUser: 1001 },
    volumeMounts: Object.keys(VOLUMES).map(name => ({ name, mountPath: `/mnt/${name}` }))
  }
  const pod = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: `${RUNNER.substring(0, 54)}-workflow`, labels: { 'runner-pod': RUNNER }, annotations: {} },
    spec: {
      containers: [container],
      initContainers: [init],
      securityContext: { fsGroup: 1001 },
      restartPolicy: 'Never',
      volumes: Object.keys(VOLUMES).map(name => ({ name, emptyDir: {} }))
    }
  }
  const added = template.spec.containers.find(one => one.name === '$job') || {}
  for (const [key, value] of Object.entries(added)) {
    if (['env', 'volumeMounts', 'ports'].includes(key)) container[key] = [...(container[key] || []), ...value]
    else if (!['name', 'image'].includes(key)) container[key] = value
  }
  Object.assign(pod.metadata.labels, template.metadata.labels)
  Object.assign(pod.metadata.annotations, template.metadata.annotations)
  for (const [key, value] of Object.entries(template.spec)) {
    if (key === 'containers') pod.spec.containers.push(...value.filter(one => !one.name.startsWith('$')))
    else if (key === 'volumes') pod.spec.volumes.push(...value)
    else pod.spec[key] = value
  }
  const { metadata } = await call('POST', pods, pod)
  const end = Date.now() + Number(process.env.ACTIONS_RUNNER_PREPARE_JOB_TIMEOUT_SECONDS) * 1000
  for (let phase = 'Pending'; phase !== 'Running'; ) {
    if (phase !== 'Pending' || Date.now() > end) {
      await prune()
      throw new Error(`Pod ${metadata.name} is unhealthy with phase status ${phase}`)
    }
    await new Promise(resolve => setTimeout(resolve, 500))
    phase = (await call('GET', `${pods}/${metadata.name}`)).status.phase
  }
  fs.appendFileSync(responseFile, JSON.stringify({ state: { jobPod: metadata.name }, context: {}, isAlpine: false }))
}

async function run() {
  let input = ''
  for await (const part of process.stdin) input += part
  const { command, args, responseFile } = JSON.parse(input)
  await allowed()
  await { prepare_job: () => prepare(args, responseFile), cleanup_job: prune }[command]()
}

run().catch(error => {
  console.log(`::error::${error.message}`)
  process.exit(1)
})
