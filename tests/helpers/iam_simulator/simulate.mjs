// Judges requests by IAM policies: a JSON object on each line of standard input, its verdict on a line of standard output.
import { createInterface } from 'node:readline'
import { runSimulation } from '@cloud-copilot/iam-simulate'

for await (const line of createInterface({ input: process.stdin })) {
  const simulation = JSON.parse(line)
  const result = await runSimulation(simulation, {})
  const ignored = result.result?.ignoredContextKeys ?? []
  console.log(JSON.stringify({ verdict: result.overallResult, errors: result.errors, ignored }))
}
