// Sets minRunners of each scale set with a schedule, as scaler/schedule.py has it on EC2.
const { RUNNERS, SETS } = process.env
const DAYS = ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun']

// What the clocks of a zone show: Node.js has the database of zones.
function clock(zone, now) {
  const format = { timeZone: zone, weekday: 'short', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' }
  const parts = new Intl.DateTimeFormat('en-US', format).formatToParts(now)
  const part = Object.fromEntries(parts.map(({ type, value }) => [type, value]))
  return { day: DAYS.indexOf(part.weekday), minute: 60 * Number(part.hour) + Number(part.minute) }
}

function holds({ zone, days, start, end }, now) {
  const { day, minute } = clock(zone, now)
  const today = days.includes(day)
  if (start < end) return today && start <= minute && minute < end
  return (today && minute >= start) || (days.includes((day + 6) % 7) && minute < end)
}

function least(schedule, now) {
  const holding = schedule.entries.filter(entry => holds(entry, now)).map(entry => entry.least)
  return holding.length ? Math.max(...holding) : schedule.least
}

async function set(name, schedule) {
  const path = `/apis/actions.github.com/v1alpha1/namespaces/${RUNNERS}/autoscalingrunnersets/${name}`
  const minRunners = least(schedule, new Date())
  if (((await call('GET', path)).spec.minRunners || 0) === minRunners) return
  console.log(`${name}: minRunners is ${minRunners} from now on`)
  await call('PATCH', path, { spec: { minRunners } })
}

// What fails for one set costs no other.
const one = ([name, schedule]) =>
  set(name, schedule).catch(error => {
    console.error(error.message)
    process.exitCode = 1
  })
Promise.all(Object.entries(JSON.parse(SETS)).map(one))
