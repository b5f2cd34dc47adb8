package check

import "strconv"

// Name identifies a kind of check, for programs. It is also the anchor of the check's section on Page.
type Name string

// The names of the checks, in the order of Page.
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

// Limits contains the required figure of each check, as text (Result.Limit). It must not be changed.
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

// Page is the path of the page with the remedies, in the repository.
const Page = "deploy/docs/checks.md"

// subject is a check of one thing, for example one replica, with the measured figure.
type subject struct {
	name   Name
	text   string
	figure string // empty: the word for the status (usual)
}

// of returns the subject of a check with this name. The argument text names the examined thing.
func (n Name) of(text string) subject { return subject{name: n, text: text} }

// with returns a copy of the subject without a figure, and appends the argument to its text.
func (s subject) with(text string) subject { return subject{name: s.name, text: s.text + text} }

// at returns a copy of the subject with the given figure.
func (s subject) at(figure string) subject {
	s.figure = figure
	return s
}

// count returns a copy of the subject with a number as its figure.
func (s subject) count(n int) subject { return s.at(strconv.Itoa(n)) }

// usual contains, for each status, the figure of a result without a measured figure.
var usual = map[Status]string{OK: "within", Unknown: "unknown", Warning: "outside", Failure: "outside"}
