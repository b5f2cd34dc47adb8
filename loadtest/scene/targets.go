package scene

import "time"

// Names of rows, which also identify their targets.
const (
	rowCPU       = "server CPU per proxy"
	rowWarm      = "server CPU per proxy, warm"
	rowBase      = "base RSS"
	rowRSS       = "RSS per proxy beyond the base"
	rowAll       = "RSS of all servers"
	rowLast      = "commit to last ACK"
	rowP99       = "commit to last ACK, p99 of edits"
	rowEdit      = "edit to last ACK"
	rowEditCPU   = "server CPU per edit"
	rowPushes    = "responses per proxy and edit"
	rowOther     = "resources sent besides those that changed"
	rowBytes     = "bytes, of those of a first join"
	rowPerProxy  = "bytes per proxy"
	rowStreams   = "streams per second"
	rowSent      = "sent while joining"
	rowRate      = "pushes per second"
	rowHomed     = "until all are re-homed"
	rowServed    = "until all are served again"
	rowOthersP50 = "others' median, of that without slow ones"
	rowOthersP99 = "others' p99, of that without slow ones"
	rowGrown     = "RSS grown while some do not read"
	rowChurn     = "scheduled edit to ACK, p99"
	rowMissing   = "ACKs that did not come"
	rowNoisy     = "noisy namespace: edits a second"
	rowQuiet     = "commit to ACK, p99, alone"
	rowWithNoisy = "commit to ACK, p99, with a noisy namespace"
	rowDelayed   = "delayed by a noisy namespace, p99"
	rowScale     = "p99 while scaling, of the steady state's"
	rowOwnPlain  = "harness, RSS per proxy, plain text"
	rowOwnTLS    = "harness, RSS per proxy, mTLS"
	rowScopes    = "scopes, of proxies"
	rowBroken    = "connections that broke or failed"
	rowOldLeaf   = "identities left with a certificate of the old root"
	rowOldRoot   = "proxies without the new root"

	rowAtSink      = "commit to ACK, p99, attackers aimed at a sink"
	rowAttacked    = "commit to ACK, p99, attackers aimed at the server"
	rowAttackRatio = "p99 under attack, of that with a sink"
	rowLost        = "good proxies disconnected"
	rowForeign     = "attackers answered as another identity's proxy"
	rowAttackRSS   = "RSS grown under attack"

	rowBothP99     = "commit to ACK, p99, with a tenant's attacks too"
	rowBothLost    = "good proxies disconnected, with a tenant's attacks too"
	rowBothMissing = "ACKs that did not come, with a tenant's attacks too"
	rowBothForeign = "attackers answered as another identity's proxy, with a tenant's attacks too"
	rowBothRSS     = "most RSS, with a tenant's attacks too"
)

// meshA and meshB are the scenarios of the worlds world-a and world-b.
var meshA = []Scenario{
	{Name: "join", Title: "1,000 proxies join", World: "world-a", Proxies: 1000, run: join, Targets: map[string]Target{
		rowCPU:  {Value: 1.5, Others: "istiod 60 ms cold, 11 ms warm; bare transport 0.9 ms"},
		rowRSS:  {Value: 70, Others: "istiod 1,300 to 3,200 KB; bare transport 40 KB"},
		rowBase: {Value: 150}, rowOwnPlain: {Value: 60},
	}},
	{Name: "virtualservice", Title: "one VirtualService is edited, 1,000 proxies see it",
		World: "world-a", Proxies: 1000, run: oneVirtualService, Targets: map[string]Target{
			rowLast:    {Value: 300, Others: "istiod 3.8 s"},
			rowEditCPU: {Value: 200, Others: "istiod 6,200 ms; bare transport 90 ms"},
			rowOther:   {Value: 0, Others: "istiod 441 MB in all"},
		}},
	{Name: "virtualservices-50", Title: "50 VirtualServices at once, 1,000 proxies see them",
		World: "world-a", Proxies: 1000, run: fiftyVirtualServices, Targets: map[string]Target{
			rowLast:    {Value: 500, Others: "istiod 5.4 s"},
			rowEditCPU: {Value: 300, Others: "istiod 7,000 ms; bare transport 90 ms"},
			rowPushes:  {Value: 1},
		}},
	{Name: "endpoint", Title: "one endpoint changes, 2,000 proxies see it", World: "world-a",
		Proxies: 2000, run: endpointEdit, Targets: map[string]Target{
			rowLast:    {Value: 80, Others: "istiod 272 ms"},
			rowEditCPU: {Value: 100, Others: "istiod 390 ms; bare transport 50 ms"},
		}},
	{Name: "reconnect", Title: "300 proxies reconnect, nothing has changed", World: "world-a",
		Proxies: 300, run: reconnect, Targets: map[string]Target{
			rowBytes: {Value: .1, Others: "istiod 100 % (721 MB)"},
			rowCPU:   {Value: 1, Others: "istiod 53 ms"},
		}},
}

var meshB = []Scenario{
	{Name: "memory", Title: "2,000 proxies join over mTLS", World: "world-b", Proxies: 2000, run: join, Targets: map[string]Target{
		rowRSS:  {Value: 100, Others: "istiod 2,000 to 2,100 KB (AKS); bare transport 60 KB"},
		rowSent: {Value: 300, Most: true}, rowOwnTLS: {Value: 90},
	}},
	{Name: "storm", Title: "2,000 proxies that hold everything reconnect at once", World: "world-b",
		Proxies: 2000, run: reconnect, Targets: map[string]Target{
			rowStreams: {Value: 1000, Most: true, Others: "istiod 25/s on two cores; bare transport 1,480/s"},
		}},
	{Name: "endpoint-10000", Title: "endpoints change, 10,000 proxies are connected", World: "world-b",
		Proxies: 10000, run: endpointEdit, Limit: 12 * time.Minute, Targets: map[string]Target{
			rowP99: {Value: 400, Others: "Consul caps at 250 updates/s; bare transport 140 to 270 ms"},
		}},
	{Name: "route-10000", Title: "a route changes, 10,000 proxies are connected", World: "world-b",
		Proxies: 10000, run: oneVirtualService, Limit: 12 * time.Minute, Targets: map[string]Target{
			rowLast: {Value: 4000, Others: "bare transport 2.6 s"},
		}},
	{Name: "rate", Title: "endpoints change as fast as they can", World: "world-b", Proxies: 5000,
		run: rate, Limit: 10 * time.Minute, Targets: map[string]Target{
			rowRate: {Value: 20000, Most: true, Others: "Consul 250/s"},
		}},
	{Name: "slow", Title: "1 % of 5,000 proxies stop reading", World: "world-b", Proxies: 5000,
		run: slow, Limit: 10 * time.Minute, Targets: map[string]Target{
			rowOthersP50: {Value: 110}, rowOthersP99: {Value: 110}, rowGrown: {Value: 5},
		}},
	{Name: "kill", Title: "one of three replicas with 10,000 streams is killed", World: "world-b",
		Proxies: 10000, Replicas: 3, run: kill, Limit: 12 * time.Minute, Targets: map[string]Target{
			rowHomed: {Value: 30}, rowBytes: {Value: 1},
		}},
	{Name: "fleet-20000", Title: "20,000 proxies on three replicas", World: "world-b",
		Proxies: 20000, Replicas: 3, run: join, Limit: 15 * time.Minute, Targets: map[string]Target{
			rowAll: {Value: 3000, Others: "istiod 40,000 MB"}, rowOwnTLS: {Value: 90},
		}},
	{Name: "report-20000", Title: "a report of three replicas with 20,000 proxies", World: "world-b",
		Proxies: 20000, Replicas: 3, run: bugReport, Limit: 15 * time.Minute, Targets: map[string]Target{
			rowReport: {Value: 30}, rowReportSize: {Value: 25},
		}},
	{Name: "commands-20000", Title: "the status of 20,000 proxies on three replicas, plans for them, and endpoints meanwhile",
		World: "world-b", Proxies: 20000, Replicas: 3, run: commands, change: tenants(4), Limit: 15 * time.Minute, Targets: map[string]Target{
			rowStatus: {Value: 1}, rowStopped: {Value: 3}, rowPlanRoute: {Value: .5}, rowPlanStrict: {Value: 5},
			rowPlanDelayed: {Value: 1.1}, rowMissing: {Value: 0},
		}},
	{Name: "restart-20000", Title: "three replicas with 20,000 streams are killed together and start again",
		World: "world-b", Proxies: 20000, Replicas: 3, run: restart, Limit: 15 * time.Minute, Targets: map[string]Target{
			rowServed: {Value: 60}, rowBytes: {Value: 1},
		}},
	{Name: "roots", Title: "the root of the mesh changes, 2,000 proxies are connected over mTLS", World: "world-b",
		Proxies: 2000, run: roots, authority: true, Limit: 10 * time.Minute, Targets: map[string]Target{
			rowBroken: {Value: 0}, rowOldRoot: {Value: 0}, rowOldLeaf: {Value: 0},
		}},
	{Name: "churn", Title: "endpoints, routes, policies, deploys and Sidecars for 20 s",
		World: "world-b", Proxies: 1000, run: churn, Targets: map[string]Target{rowMissing: {Value: 0}}},
	{Name: "neighbour", Title: "endpoints change while another namespace changes 1,000 objects a second",
		World: "world-b", Proxies: 400, run: neighbour, change: tenants(4), Targets: map[string]Target{
			rowDelayed: {Value: 100}, rowNoisy: {Value: 950, Most: true}, rowMissing: {Value: 0},
		}},
	{Name: "scale", Title: "three replicas, four, three again, under churn", World: "world-b", Proxies: 3000, Replicas: 3, run: scale,
		flags: []string{"--replica-ramp", ramp.String(),
			"--shutdown-duration", grace.String()}, Limit: 10 * time.Minute, Targets: map[string]Target{
			rowScale: {Value: 2}, rowMissing: {Value: 0},
		}},
}

// hardening are the scenarios with faulty or hostile clients.
var hardening = []Scenario{
	{Name: "hostile", Title: "endpoints change, 2,000 proxies are connected over mTLS, all attacks of a hostile neighbour at once", World: "world-b", Proxies: 2000, run: hostile,
		change: tenants(4), authority: true, webhooks: true, attack: 30 * time.Second, flags: []string{"--shared-sources", goodSources},
		env: []string{"GOMEMLIMIT=" + tenantMost}, Limit: 10 * time.Minute, Targets: map[string]Target{
			rowAttackRatio: {Value: 1.5}, rowLost: {Value: 0}, rowAttackRSS: {Value: 256}, rowMissing: {Value: 0}, rowForeign: {Value: 0},
			rowBothP99: {Value: 200}, rowBothLost: {Value: 0}, rowBothMissing: {Value: 0}, rowBothForeign: {Value: 0}, rowBothRSS: {Value: 1073},
		}},
	{Name: "account",
		Title: "endpoints change, 10,000 Pods of one account are connected from one address, and somebody there who has its token " +
			"mints certificates and opens streams",
		World: "world-b", Proxies: 10000, run: hostile, oneAccount: true,
		change: tenants(4), authority: true, attack: 30 * time.Second, pace: 2 * time.Second,
		flags: []string{"--shared-sources", goodSources}, Limit: 15 * time.Minute, Targets: map[string]Target{
			rowAttackRatio: {Value: 1.5}, rowLost: {Value: 0}, rowAttackRSS: {Value: 128}, rowMissing: {Value: 0},
		}},
	{Name: "tenant", Title: "each attack of somebody who may write the objects of one namespace, one after the other, with 1 GiB: endpoints of others change and proxies join", World: "world-a",
		Proxies: 1000, run: tenant, attack: 20 * time.Second, pace: tenantPace, env: []string{"GOMEMLIMIT=" + tenantMost},
		Limit: 20 * time.Minute, Targets: tenantTargets()},
	{Name: "preauth", Title: "each attack of somebody without a credential, one after the other, while good clients connect", World: "world-a", Proxies: 50, run: preauth,
		change: overTLS, authority: true, webhooks: true, attack: time.Minute, Limit: 20 * time.Minute, Targets: preauthTargets()},
}
