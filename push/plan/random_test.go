package plan

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// mesh is a small random mesh with few names, few addresses and few labels, so that everything collides. Each
// *rand.Rand has a seed of its own, so that additions do not change the edits of the others; if it is nil, the mesh has
// no such records or settings.
type mesh struct {
	t           testing.TB
	r           *rand.Rand
	more        *rand.Rand // the edits that accompany edit
	clock       int64
	lives       *rand.Rand // the edits that accompany workload
	nets        *rand.Rand // networks and their gateways
	tokens      *rand.Rand // RequestAuthentications and providers of external authorization
	telemetries *rand.Rand // Telemetries and their providers
	exts        *rand.Rand // WasmPlugins and TrafficExtensions
	entrances   *rand.Rand // Gateways and the VirtualServices bound to them
	protocols   *rand.Rand // nil: all HTTP servers of Gateways have the protocol HTTP
	local       *rand.Rand // endpoints that lead to gateways' own Pods
	pulls       *rand.Rand // credentials for downloading the modules of extensions
	join        *rand.Rand // ServiceEntries that are one service, and their endpoints
	proxies     *rand.Rand // headers and connections of defaultConfig
	turns       *rand.Rand // where plans in the background pause
	ends        *rand.Rand // TLS that ingress listeners terminate, and the HTTP proxy's port
	without     *rand.Rand // hosts that Sidecars exclude
	targets     *rand.Rand // policies of Gateways of the Gateway API
	unknown     *rand.Rand // whether proxies resolve the names of unknown hosts
	files       bool       // ingress listeners have TLS with files; false in histories for Envoy, which would read them
	// ServiceEntries have automatic addresses; false in histories that strike cells, which must stay valid
	auto    bool
	records map[model.Key]model.Record
}

var (
	namespaces = []string{"a", "b", "istio-system"}
	services   = []string{"s0", "s1", "s2"}
	exports    = []string{"['*']", "['*']", "['*']", "[a]", "[b]", "['.']", "[]", "['~']"}
	outside    = []string{"ext.example.com", "ext.example.com", "www.example.com", "*.example.com", "s0.a", "s1", "s2.b.svc.cluster.local", "x.s2.a.svc.cluster.local"}
	vips       = []string{"10.96.0.1", "10.96.0.2", "10.96.0.3", "fd00::1", "240.0.0.0/16"}
)

// Seeds from firstStrike are for histories that strike cells. Networks exist only in seeds from firstNetworks to
// firstTokens, since each edit of a gateway plans again what other cells would miss; for the same reason tokens exist
// up to firstTelemetry, Telemetries up to firstExtensions, extensions up to firstJoined, joined ServiceEntries up to
// firstPulls, extensions with credentials up to firstEntrances, and Gateways with servers from there.
const firstStrike, firstNetworks, firstTokens, firstTelemetry, firstExtensions, firstJoined, firstPulls, firstEntrances = 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000

// firstAsked is the seed of the first history whose plans Envoy checks.
const firstAsked = 500

func newMesh(t testing.TB, seed uint64) *mesh {
	m := &mesh{t: t, r: rand.New(rand.NewPCG(seed, 7)), more: rand.New(rand.NewPCG(seed, 8)), lives: rand.New(rand.NewPCG(seed, 9)), turns: rand.New(rand.NewPCG(seed, 17)), records: map[model.Key]model.Record{}}
	if seed < firstStrike || seed >= firstEntrances {
		m.entrances = rand.New(rand.NewPCG(seed, 21))
	}
	if seed < firstStrike || seed >= firstPulls && seed < firstEntrances {
		m.pulls = rand.New(rand.NewPCG(seed, 18))
	}
	if seed < firstStrike || seed >= firstJoined && seed < firstPulls {
		m.join = rand.New(rand.NewPCG(seed, 14))
	}
	if seed < firstStrike {
		m.proxies, m.local = rand.New(rand.NewPCG(seed, 15)), rand.New(rand.NewPCG(seed, 22))
		m.without = rand.New(rand.NewPCG(seed, 19))
		m.unknown = rand.New(rand.NewPCG(seed, 20))
		m.targets = rand.New(rand.NewPCG(seed, 22))
		m.ends, m.files = rand.New(rand.NewPCG(seed, 16)), seed < firstAsked
	}
	if seed < firstStrike || seed >= firstExtensions && seed < firstJoined || seed >= firstPulls && seed < firstEntrances {
		m.exts = rand.New(rand.NewPCG(seed, 13))
	}
	if seed < firstStrike || seed >= firstNetworks && seed < firstTokens {
		m.nets = rand.New(rand.NewPCG(seed, 10))
	}
	if seed < firstStrike || seed >= firstTokens && seed < firstTelemetry {
		m.tokens = rand.New(rand.NewPCG(seed, 11))
	}
	if seed < firstStrike || seed >= firstTelemetry && seed < firstExtensions {
		m.telemetries = rand.New(rand.NewPCG(seed, 12))
	}
	return m
}

func (m *mesh) pick(from ...string) string { return from[m.r.IntN(len(from))] }

func (m *mesh) one(in int) bool { return m.r.IntN(in) == 0 }

func (m *mesh) host() string {
	switch m.r.IntN(8) {
	case 0:
		return m.pick(outside...)
	case 1:
		return m.pick("*.a.svc.cluster.local", "*.b.svc.cluster.local", "*.example.com", "*.local", "*.com")
	}
	return m.inside()
}

func (m *mesh) inside() string {
	return m.pick(services...) + "." + m.pick(namespaces[:2]...) + ".svc.cluster.local"
}

func quoted(s ...string) string { return "['" + strings.Join(s, "', '") + "']" }

// edit makes, changes or deletes one record.
func (m *mesh) edit() (put model.Record, del model.Key) {
	kinds := []model.Kind{model.KindService, model.KindService, model.KindServiceEntry, model.KindServiceEntry, model.KindEndpoints, model.KindEndpoints, model.KindEndpoints,
		model.KindVirtualService, model.KindVirtualService, model.KindVirtualService, model.KindDestinationRule, model.KindDestinationRule,
		model.KindSidecar, model.KindEnvoyFilter, model.KindPeerAuthentication, model.KindAuthorizationPolicy, model.KindDestinationRule, model.KindSecret}
	kind := kinds[m.r.IntN(len(kinds))]
	if m.one(40) {
		kind = model.KindMesh
	}
	namespace, name := m.pick(namespaces...), fmt.Sprintf("o%d", m.r.IntN(3))
	switch kind {
	case model.KindService, model.KindEndpoints:
		namespace, name = m.pick(namespaces[:2]...), m.pick(services...)
	case model.KindMesh:
		namespace, name = "", model.MeshKey.Name
	default: // the name may be any of the names
	}
	if kind == model.KindSecret {
		name = m.pick("cert", "cert", "cert-cacert")
	}
	if kind == model.KindEndpoints {
		name += "-" + m.pick("1", "2")
	}
	key := model.Key{Kind: kind, Namespace: namespace, Name: name}
	if old, ok := m.records[key]; ok && m.one(4) {
		delete(m.records, key)
		return nil, old.Meta().Key
	}
	m.clock++
	created := m.clock
	if old, ok := m.records[key]; ok && !m.one(6) {
		created = old.Meta().Created
	} else if m.one(5) {
		created = 1 // equal ages: the names decide
	}
	put = rec(m.t, kind, fmt.Sprintf("%s/%s@%d", namespace, name, created), strings.ReplaceAll(m.text(kind, name), ".NS.", "."+namespace+"."))
	m.records[key] = put
	return put, model.Key{}
}

// rights makes, changes or deletes, in some calls, a record that affects only the rights to private keys, or the policy
// against the identities that the CA has revoked.
func (m *mesh) rights() (put model.Record, del model.Key) {
	pick := func(from ...string) string { return from[m.more.IntN(len(from))] }
	kinds := []model.Kind{model.KindSecretReader, model.KindGateway, model.KindDestinationRule, model.KindAuthorizationPolicy}
	kind := kinds[m.more.IntN(2*len(kinds))%len(kinds)]
	namespace, name := pick("a", "b"), "rights"
	selector := pick("", "app: s0", "app: s1", "version: v1")
	text := map[model.Kind]string{
		model.KindSecretReader:        "accounts: ['" + pick("a/sa", "b/sa", "a/*", "*/*", "a/other") + "']",
		model.KindGateway:             fmt.Sprintf("{selector: {%s}, servers: [{tls: {mode: %s, credentialName: %s}}]}", selector, pick("SIMPLE", "SIMPLE", "PASSTHROUGH"), pick("cert", "cert", "other")),
		model.KindDestinationRule:     fmt.Sprintf("{host: unused.test, workloadSelector: {matchLabels: {%s}}, trafficPolicy: {tls: {mode: MUTUAL, credentialName: %s}}}", selector, pick("cert", "cert", "other")),
		model.KindAuthorizationPolicy: deniedText(m.t, pick("a", "b"), pick("a", "b")),
	}[kind]
	switch kind {
	case model.KindSecretReader:
		namespace = pick("a", "b", "")
	case model.KindAuthorizationPolicy:
		namespace, name = pick("istio-system", "istio-system", "b"), model.DeniedName
	default:
	}
	key := model.Key{Kind: kind, Namespace: namespace, Name: name}
	if old, ok := m.records[key]; ok && m.more.IntN(3) == 0 {
		delete(m.records, key)
		return nil, old.Meta().Key
	}
	put = rec(m.t, kind, namespace+"/"+name, text)
	m.records[key] = put
	return put, model.Key{}
}

// elsewhere makes, changes or deletes a record of another cluster, with the names, hosts and addresses of the config
// cluster.
func (m *mesh) elsewhere() (put model.Record, del model.Key) {
	m.r, m.more = m.more, m.r
	defer func() { m.r, m.more = m.more, m.r }()
	kinds := []model.Kind{model.KindService, model.KindService, model.KindEndpoints, model.KindEndpoints, model.KindSecret, model.KindSecretReader}
	kind := kinds[m.r.IntN(len(kinds))]
	namespace, name := m.pick(namespaces[:2]...), m.pick(services...)
	text := ""
	switch kind {
	case model.KindEndpoints:
		name += "-" + m.pick("1", "2")
	case model.KindSecret:
		name = m.pick("cert", "cert-cacert")
	case model.KindSecretReader:
		name, text = "rights", "accounts: ['"+m.pick("a/sa", "a/*", "*/*", "a/other")+"']"
	default:
	}
	key := model.Key{Kind: kind, Namespace: namespace, Name: name, Origin: west}
	if old, ok := m.records[key]; ok && m.one(3) {
		delete(m.records, key)
		return nil, old.Meta().Key
	}
	if m.clock++; text == "" {
		text = m.text(kind, name)
	}
	put = of(m.t, west, rec(m.t, kind, fmt.Sprintf("%s/%s@%d", namespace, name, m.clock%7), strings.ReplaceAll(text, ".NS.", "."+namespace+".")))
	m.records[key] = put
	return put, model.Key{}
}

// workload makes, changes or deletes a Workload.
func (m *mesh) workload() (put model.Record, del model.Key) {
	pick := func(from ...string) string { return from[m.lives.IntN(len(from))] }
	key := model.Key{Kind: model.KindWorkload, Namespace: pick("a", "b"), Name: pick("w0", model.WorkloadEntryPrefix+"w0")}
	if old, ok := m.records[key]; ok && m.lives.IntN(3) == 0 {
		delete(m.records, key)
		return nil, old.Meta().Key
	}
	put = rec(m.t, key.Kind, key.Namespace+"/"+key.Name, fmt.Sprintf("endpoint: {address: 10.1.7.1, labels: {version: %s, app: %s}, serviceAccount: %s, health: %s}",
		pick("v1", "v2"), pick("s0", "s1"), pick("sa", "sa", "other"), pick("HEALTH_READY", "HEALTH_NOT_READY")))
	m.records[key] = put
	return put, model.Key{}
}

func (m *mesh) text(kind model.Kind, name string) string {
	switch kind {
	case model.KindMesh:
		return fmt.Sprintf("{outboundTrafficPolicy: {mode: %s}, defaultVirtualServiceExportTo: %s, defaultDestinationRuleExportTo: %s, rootNamespace: %s, accessLogFile: %s%s%s%s}",
			m.byName(m.pick("ALLOW_ANY", "REGISTRY_ONLY")), m.pick("['*']", "['*']", "['.']", "[b]"), m.pick("['*']", "['*']", "['*']", "[a]"), m.pick("istio-system", "istio-system", "b"), m.pick("''", "/dev/stdout"),
			m.pick("", ", localityLbSetting: {enabled: false}", ", localityLbSetting: {failover: [{from: r1, to: r2}]}, zoneAwareLbSetting: {enabled: true}"), m.providers(), m.proxyPort())
	case model.KindService:
		text := m.service("hosts: [" + name + ".NS.svc.cluster.local]")
		return text + map[bool]string{true: "aliasFor: s1.b.svc.cluster.local\n"}[len(text)%9 == 0] +
			fmt.Sprintf("mergedListeners: %v\nlocalNames: %v\n", len(text)%2 == 0, len(text)%3 == 0)
	case model.KindServiceEntry:
		hosts := []string{m.pick(outside...)}
		if m.one(4) {
			hosts = append(hosts, m.inside())
		}
		return m.service("hosts: "+quoted(hosts...)) + m.automatic(hosts) + fmt.Sprintf("resolution: %s\n", m.pick("RESOLUTION_EDS", "RESOLUTION_DNS", "RESOLUTION_NONE", "RESOLUTION_DNS_ROUND_ROBIN"))
	case model.KindEndpoints:
		return m.endpoints(name)
	case model.KindVirtualService:
		return m.virtualService()
	case model.KindDestinationRule:
		return m.rule()
	case model.KindSidecar:
		return m.sidecar()
	case model.KindEnvoyFilter:
		return m.filter()
	case model.KindSecret:
		encode := func(from ...string) string { return base64.StdEncoding.EncodeToString([]byte(m.pick(from...))) }
		return fmt.Sprintf("{chain: '%s', trust: '%s', key: '%s', mac: '%s'}", encode("one", "two"), encode("", "a", "b"), encode("", "x", "y"), encode("x", "y"))
	case model.KindPeerAuthentication, model.KindAuthorizationPolicy:
		return m.policy(kind)
	// Records of these kinds are made by rights, workload, gateways, token and telemetry.
	case model.KindGateway, model.KindSecretReader, model.KindWorkload, model.KindNetworkGateways, model.KindRequestAuthentication, model.KindTelemetry:
	case model.KindWasmPlugin, model.KindTrafficExtension: // made by extensions
	// Plans do not read records of these kinds: TestWhatNoPlanReadsIsNotPlanned.
	case model.KindServiceAccount, model.KindNamespace, model.KindWorkloadGroup, model.KindProxyConfig:
	}
	panic("the random editor does not know kind " + kind.String())
}

func (m *mesh) service(hosts string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nexportTo: %s\nselector: {%s}\npublishNotReady: %v\n", hosts, m.pick(exports...), m.pick("", "app: s0", "app: s1", "version: v1"), m.one(6))
	switch m.r.IntN(5) {
	case 0:
		b.WriteString("headless: true\n")
	case 1:
	default:
		fmt.Fprintf(&b, "addresses: %s\n", quoted(m.pick(vips...)))
	}
	b.WriteString([]string{"distribution: DISTRIBUTION_SAME_ZONE\n", "distribution: DISTRIBUTION_SAME_NODE\n", "nodeLocal: true\n", "", "", "", "", ""}[b.Len()%8] + "ports:\n")
	for i, p := range []string{"http, number: 80, protocol: PROTOCOL_HTTP", "raw, number: 80, protocol: PROTOCOL_TCP", "web, number: 8080, protocol: PROTOCOL_GRPC",
		"tcp, number: 9000, protocol: PROTOCOL_TCP", "any, number: 9000, protocol: PROTOCOL_AUTO", "tls, number: 443, protocol: PROTOCOL_TLS", "dns, number: 443, protocol: PROTOCOL_UDP"} {
		if i == 0 && !m.one(4) || m.one(3) {
			fmt.Fprintf(&b, "- {name: %s, %s}\n", p, m.pick("targetNumber: 8080", "targetNumber: 8081", "targetName: main", ""))
		}
	}
	return b.String()
}

func (m *mesh) endpoints(name string) string {
	short, _, _ := strings.Cut(name, "-")
	hosts := short + ".NS.svc.cluster.local"
	if m.one(4) {
		hosts = m.pick(outside...)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "hosts: %s\nports: [{name: http, number: %s}, {name: tcp, number: 9000}, {name: any, number: 9000}, {name: web, number: 8080}]\nendpoints:\n",
		quoted(hosts), m.pick("8080", "8080", "8081"))
	for i := range m.r.IntN(4) {
		fmt.Fprintf(&b, "- {node: node-%d, hostname: p%[1]d, network: %s, locality: %s, address: 10.1.0.%d, health: %s, labels: {version: %s, app: %s}, serviceAccount: %s, mtls: %v}\n", i, m.network(), m.pick("''", "r1/z1", "r1/z2", "r2/z1"), i+m.r.IntN(2)*10, m.pick("HEALTH_READY", "HEALTH_READY", []string{"HEALTH_NOT_READY", "HEALTH_DRAINING", "HEALTH_ENDED"}[i%3]),
			m.pick("v1", "v2"), m.pick("s0", "s1"), m.pick("sa", "sa", "sa", "other", "''"), !m.one(4))
	}
	return b.String()
}

func (m *mesh) network() string {
	if m.nets == nil {
		return "''"
	}
	return []string{"''", "n1", "n2"}[m.nets.IntN(3)]
}

func (m *mesh) destination() string {
	return fmt.Sprintf("{host: %s, subset: %s%s}", m.pick(m.inside(), m.inside(), m.pick("ext.example.com", "www.example.com")), m.pick("''", "v1", "v2"),
		m.pick("", "", ", port: {number: 80}", ", port: {number: 9000}"))
}

func (m *mesh) virtualService() string {
	hosts := []string{m.host()}
	if m.one(3) {
		hosts = append(hosts, m.host())
	}
	var b strings.Builder
	fmt.Fprintf(&b, "hosts: %s\nexportTo: %s\ngateways: %s\n", quoted(hosts...), m.pick(exports...), m.pick("[]", "[mesh]", "[mesh, gw]", "[gw]"))
	if m.one(3) {
		fmt.Fprintf(&b, "tcp: [{match: [{port: %s%s}], route: [{destination: %s}]}]\n", m.pick("9000", "80"), map[bool]string{true: ", sourceLabels: {tier: x}"}[b.Len()%3 == 0], m.destination())
		fmt.Fprintf(&b, "tls: [{match: [{sniHosts: [%s]}], route: [{destination: %s}]}]\n", m.pick("x.example.com", "y.example.com"), m.destination())
		if m.one(2) {
			return b.String()
		}
	}
	fmt.Fprintf(&b, "http:\n- match: [{uri: {prefix: /%d}%s}]\n  route: [{destination: %s, weight: 40}, {destination: %s, weight: 60}]\n- route: [{destination: %s}]\n", m.r.IntN(9),
		m.pick("", "", ", sourceLabels: {tier: x}", ", sourceLabels: {version: v1}", ", sourceNamespace: a"), m.destination(), m.destination(), m.destination())
	return b.String()
}

func (m *mesh) rule() string {
	policy := m.pick("", "trafficPolicy: {loadBalancer: {simple: RANDOM}}", "trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x}}}",
		"trafficPolicy: {connectionPool: {tcp: {idleTimeout: 7s}}}", "trafficPolicy: {outlierDetection: {consecutive5xxErrors: 3}}",
		"trafficPolicy: {loadBalancer: {localityLbSetting: {distribute: [{from: r1/*, to: {r1/z1: 80, r2: 20}}]}, zoneAwareLbSetting: {enabled: true, failoverPriority: [version]}}}",
		"trafficPolicy: {outlierDetection: {consecutive5xxErrors: 3}, loadBalancer: {localityLbSetting: {failoverPriority: [version]}}}")
	subsets := m.pick("[]", "[{name: v1, labels: {version: v1}}]", "[{name: v2, labels: {version: v2}}]",
		"[{name: v1, labels: {version: v2}}, {name: v2, labels: {version: v2}, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true}}}}]")
	selector := m.pick("", "", "", "workloadSelector: {matchLabels: {version: v1}}", "workloadSelector: {matchLabels: {app: s0, tier: x}}")
	return fmt.Sprintf("host: '%s'\nexportTo: %s\nsubsets: %s\n%s\n%s\n", m.host(), m.pick(exports...), subsets, policy, selector)
}

func (m *mesh) sidecar() string {
	hosts := func() string {
		return quoted(append([]string{m.pick("./*", "*/*", "a/*", "b/*", "~/*", "./s0.a.svc.cluster.local", "*/"+m.host())}, m.excluded()...)...)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "workloadSelector: {labels: {%s}}\n", m.pick("", "", "app: s0", "app: s1"))
	if m.one(3) {
		fmt.Fprintf(&b, "outboundTrafficPolicy: {mode: %s}\n", m.pick("ALLOW_ANY", "REGISTRY_ONLY"))
	}
	capture := m.pick("DEFAULT", "DEFAULT", "NONE")
	b.WriteString("egress:\n")
	if m.one(3) {
		fmt.Fprintf(&b, "- {port: {number: %s, protocol: %s, name: x}, bind: %s, captureMode: %s, hosts: %s}\n", m.pick("80", "9000"), m.pick("HTTP", "TCP"), m.pick("''", "127.0.1.1"), capture, hosts())
	}
	fmt.Fprintf(&b, "- {captureMode: %s, hosts: %s}\n", capture, hosts())
	if m.one(3) {
		port := m.pick("8080", "9999")
		to := map[string]string{"8080": "127.0.0.1", "9999": "0.0.0.0"}[port]
		protocol, tls := m.ended()
		fmt.Fprintf(&b, "ingress: [{port: {number: %s, protocol: %s, name: in}, captureMode: %s, defaultEndpoint: '%s:8080'%s}]\n", port, protocol, capture, to, tls)
	}
	return b.String()
}

func (m *mesh) filter() string {
	context := m.pick("ANY", "SIDECAR_OUTBOUND", "SIDECAR_INBOUND", "GATEWAY")
	value := map[string]string{
		"CLUSTER":             m.pick("operation: MERGE, value: {connect_timeout: 3s}", "operation: REMOVE", "operation: ADD, value: {name: added, alt_stat_name: 'kubernetes://cert', connect_timeout: 1s, type: STATIC}"),
		"LISTENER":            m.pick("operation: MERGE, value: {per_connection_buffer_limit_bytes: 9}", "operation: REMOVE"),
		"HTTP_ROUTE":          "operation: MERGE, value: {route: {timeout: 9s}}",
		"VIRTUAL_HOST":        m.pick("operation: REMOVE", "operation: ADD, value: {name: more, domains: [more.example.org]}"),
		"ROUTE_CONFIGURATION": "operation: MERGE, value: {most_specific_header_mutations_wins: true}",
	}
	apply := m.pick("CLUSTER", "CLUSTER", "LISTENER", "HTTP_ROUTE", "VIRTUAL_HOST", "ROUTE_CONFIGURATION")
	match := map[string]string{
		"CLUSTER":      ", cluster: {service: " + m.inside() + "}",
		"LISTENER":     ", listener: {portNumber: 80}",
		"VIRTUAL_HOST": ", routeConfiguration: {name: '80', vhost: {name: '" + m.inside() + ":80'}}",
		"HTTP_ROUTE":   m.pick("", ", routeConfiguration: {name: '80'}"),
	}[apply]
	return fmt.Sprintf("workloadSelector: {labels: {%s}}\nconfigPatches:\n- {applyTo: %s, match: {context: %s%s}, patch: {%s}}\n",
		m.pick("", "app: s0", "version: v1"), apply, context, match, value[apply])
}

// wanted are the Secrets that proxies request; some of them no proxy may receive.
var wanted = []string{"kubernetes://cert", "kubernetes://cert-cacert", "kubernetes://a/cert", "kubernetes-gateway://a/cert", "kubernetes-gateway://a/cert-cacert",
	"kubernetes://b/cert", "kubernetes-gateway://b/cert", "kubernetes-gateway://cert", "kubernetes://none", "default", ""}
