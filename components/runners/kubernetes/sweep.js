// Ends the pods of jobs whose runner is gone. No pod can be the owner of one in another namespace, so nothing else does.
const { RUNNERS, JOBS } = process.env
const PODS = '/api/v1/namespaces'

async function sweep() {
  // First the jobs: a runner is there before its job's pod, and ends after it.
  const jobs = (await call('GET', `${PODS}/${JOBS}/pods?labelSelector=runner-pod`)).items
  const runners = new Map((await call('GET', `${PODS}/${RUNNERS}/pods`)).items.map(pod => [pod.metadata.name, pod]))
  for (const { metadata } of jobs) {
    const runner = runners.get(metadata.labels['runner-pod'])
    const works = runner && !['Succeeded', 'Failed'].includes(runner.status.phase)
    // ARC may start another pod of the runner's name, which knows nothing of this job.
    if (works && runner.metadata.creationTimestamp <= metadata.creationTimestamp) continue
    console.log(`${metadata.name}: its runner ${metadata.labels['runner-pod']} is gone`)
    await call('DELETE', `${PODS}/${JOBS}/pods/${metadata.name}`, {
      apiVersion: 'v1',
      kind: 'DeleteOptions',
      preconditions: { uid: metadata.uid }
    }).catch(error => {
      // It has ended meanwhile, or is another one of that name.
      if (![404, 409].includes(error.status)) throw error
    })
  }
}

sweep().catch(error => {
  console.error(error.message)
  process.exit(1)
})
