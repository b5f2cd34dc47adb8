package check

import "strconv"

// Name identifies a kind of check. It is the anchor of its section in deploy/docs/checks.md.
type Name string

// The checks, in the order of the page.
const (
	NameAPIServer       Name = "api-server"
	NameClock           Name = "clock"
	NameDefinitions     Name = "definitions"
	NameGateways        Name = "gateways"
	NameGatewaySecrets  Name = "gateway-secrets"
	NameInstaller       Name = "installer-rights"
	NameOthers          Name = "other-control-planes"
	NameReplicas        Name = "replicas"
	NameRights          Name = "rights"
	NameLeader          Name = "leader"
	NameReady           Name = "ready"
	NamePages           Name = "pages"
	NameEtcd            Name = "etcd"
	NameWrites          Name = "kubernetes-writes"
	NameRemovals        Name = "held-removals"
	NamePolicies        Name = "policies"
	NameConfiguration   Name = "configuration"
	NameSize            Name = "size"
	NameWebhooks        Name = "webhooks"
	NameWebhookCalls    Name = "webhook-calls"
	NameWorkload        Name = "workload"
	NameConnected       Name = "proxy-connected"
	NameInSync          Name = "proxy-in-sync"
	NameRefused         Name = "proxy-refused"
	NameWithheld        Name = "proxy-withheld"
	NameProxyObjects    Name = "proxy-objects"
	NameUpgradeTool     Name = "upgrade-tool"
	NameUpgradeVersions Name = "upgrade-versions"
	NameUpgradeRoom     Name = "upgrade-room"
	NameUpgradeFleet    Name = "upgrade-fleet"
)

// Limits are the limits of the checks: what a figure has to be.
var Limits = map[Name]string{
	NameAPIServer: "Kubernetes 1." + strconv.Itoa(oldest) + " or later", NameClock: "at most " + tolerated.String() + " apart",
	NameDefinitions: "0 kinds missing", NameGateways: "0 faults", NameGatewaySecrets: "0 Secrets unreadable",
	NameInstaller: "0 rights missing", NameOthers: "0 webhooks of the same revision", NameReplicas: "0 not ready",
	NameRights: "0 rights missing", NameLeader: "at most " + behind.String() + " behind the cluster", NameReady: "ready, without notes",
	NamePages: "0 unread", NameEtcd: "0 problems", NameWrites: "0 refused", NameRemovals: "0 held", NamePolicies: "0 without effect",
	NameConfiguration: "0 errors", NameSize: "the proxies that the installed size is for",
	NameWebhooks: "each replica answers, with a certificate that is believed", NameWebhookCalls: "a dry run is answered",
	NameWorkload:  "the CA takes a token, and clusters are sent",
	NameConnected: "1 replica", NameInSync: "in sync, or behind for at most " + behindProxy.String(), NameRefused: "0 resources",
	NameWithheld: "0 resources", NameProxyObjects: "0 errors",
	NameUpgradeTool: "navarchctl of the new version", NameUpgradeVersions: "1 version runs",
	NameUpgradeRoom: "2 ready replicas of each role", NameUpgradeFleet: "0 proxies behind or refusing",
}

// Page is the page of remedies.
const Page = "deploy/docs/checks.md"

// subject is a check of one thing, with its figure.
type subject struct {
	name   Name
	text   string
	figure string // empty: it follows from the status
}

// of returns the check of a thing.
func (n Name) of(text string) subject { return subject{name: n, text: text} }

// with appends to the text.
func (s subject) with(text string) subject { return subject{name: s.name, text: s.text + text} }

// at returns the subject with its figure.
func (s subject) at(figure string) subject {
	s.figure = figure
	return s
}

// count is at for a number of things.
func (s subject) count(n int) subject { return s.at(strconv.Itoa(n)) }

// usual are the figures of results that state none.
var usual = map[Status]string{OK: "within", Unknown: "unknown", Warning: "outside", Failure: "outside"}
