package traffic

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

func rule(t *testing.T, text string) *model.DestinationRule {
	t.Helper()
	return record(t, model.Key{Kind: model.KindDestinationRule, Namespace: "shop", Name: "r"}, text, &networkingv1.DestinationRule{}).(*model.DestinationRule)
}

func mesh(t *testing.T, text string) *model.Mesh {
	t.Helper()
	return record(t, model.MeshKey, text, &meshv1.MeshConfig{}).(*model.Mesh)
}

// record returns a record with the body in a text.
func record(t *testing.T, key model.Key, text string, body proto.Message) model.Record {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil && text != "" {
		err = protojson.Unmarshal(raw, body)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := model.New(key, 1, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const levels = `
host: a
trafficPolicy:
  connectionPool: {tcp: {maxConnections: 1}}
  loadBalancer: {simple: RANDOM}
  tls: {mode: SIMPLE}
  tunnel: {targetHost: host.example.com, targetPort: 1}
  proxyProtocol: {version: V2}
  retryBudget: {minRetryConcurrency: 7}
  portLevelSettings: [{port: {number: 90}, outlierDetection: {maxEjectionPercent: 9}}]
subsets:
- {name: bare}
- name: over
  trafficPolicy:
    loadBalancer: {simple: ROUND_ROBIN}
    portLevelSettings: [{port: {number: 91}, tls: {mode: DISABLE}}]
- name: tunnel
  trafficPolicy:
    tunnel: {targetHost: subset.example.com, targetPort: 1}
    portLevelSettings: [{port: {number: 91}, outlierDetection: {maxEjectionPercent: 8}}, {port: {number: 90}, tls: {mode: DISABLE}}]
`

// further returns the settings of a policy that cannot be port-level, with their places.
func further(p Policy) string {
	var out []string
	if p.Tunnel != nil {
		out = append(out, p.Tunnel.TargetHost+" "+p.TunnelAt.Field)
	}
	if p.ProxyProtocol != nil {
		out = append(out, p.ProxyProtocol.Version.String()+" "+p.ProxyProtocolAt.Field)
	}
	if p.RetryBudget != nil {
		out = append(out, fmt.Sprint(p.RetryBudget.MinRetryConcurrency)+" "+p.RetryBudgetAt.Field)
	}
	return strings.Join(out, ", ")
}

// Settings of a subset replace those of the host one by one; settings of a port replace all settings of their level,
// and those of the host that can be port-level.
func TestEffective(t *testing.T) {
	r := rule(t, levels)
	const proxyAndBudget = "V2 spec.trafficPolicy.proxyProtocol, 7 spec.trafficPolicy.retryBudget"
	const ofHost = "host.example.com spec.trafficPolicy.tunnel, " + proxyAndBudget
	const ofSubset = "subset.example.com spec.subsets[2].trafficPolicy.tunnel, " + proxyAndBudget
	for _, c := range []struct {
		name, subset string
		port         uint32
		pool         int32
		balancer     networkingv1.LoadBalancerSettings_SimpleLB
		tls          bool
		tlsAt        string
		ejection     int32
		further      string
	}{
		{"the host", "", 80, 1, networkingv1.LoadBalancerSettings_RANDOM, true, "spec.trafficPolicy.tls", 0, ofHost},
		{"a port of the host", "", 90, 0, networkingv1.LoadBalancerSettings_UNSPECIFIED, false, "", 9, ""},
		{"a subset without a policy", "bare", 80, 1, networkingv1.LoadBalancerSettings_RANDOM, true, "spec.trafficPolicy.tls", 0, ofHost},
		{"a subset", "over", 80, 1, networkingv1.LoadBalancerSettings_ROUND_ROBIN, true, "spec.trafficPolicy.tls", 0, ofHost},
		{"a subset over a port of the host", "over", 90, 0, networkingv1.LoadBalancerSettings_ROUND_ROBIN, false, "", 9, ""},
		{"a port of a subset", "over", 91, 0, networkingv1.LoadBalancerSettings_UNSPECIFIED, true, "spec.subsets[1].trafficPolicy.portLevelSettings[0].tls", 0, ofHost},
		{"a port of a subset over that of the host", "tunnel", 90, 0, networkingv1.LoadBalancerSettings_UNSPECIFIED, true, "spec.subsets[2].trafficPolicy.portLevelSettings[1].tls", 0, ""},
		{"a subset that tunnels", "tunnel", 80, 1, networkingv1.LoadBalancerSettings_RANDOM, true, "spec.trafficPolicy.tls", 0, ofSubset},
		{"a port of a subset whose others tunnel", "tunnel", 91, 0, networkingv1.LoadBalancerSettings_UNSPECIFIED, false, "", 8, ofHost},
	} {
		of, index := r, slices.IndexFunc(r.Spec.Subsets, func(s *networkingv1.Subset) bool { return s.Name == c.subset })
		if index < 0 {
			of = nil
		}
		p := Effective(r, of, index, c.port)
		if p.Pool.GetTcp().GetMaxConnections() != c.pool || p.Balancer.GetSimple() != c.balancer || (p.TLS != nil) != c.tls ||
			p.TLSAt.Field != c.tlsAt || p.Outlier.GetMaxEjectionPercent() != c.ejection || further(p) != c.further {
			t.Errorf("%s: %+v, %s", c.name, p, further(p))
		}
	}
	if p := Effective(nil, nil, 0, 80); p != (Policy{}) || Intern(p) != (Ref{}) || (Ref{}).Get() != p {
		t.Errorf("without a rule: %+v", p)
	}
	at := func(port uint32) Ref { return Intern(Effective(r, nil, 0, port)) }
	if at(80) != at(81) || at(80) == at(90) {
		t.Error("references are not those of equal policies")
	}
	var paths []string
	for at := range All(r.Spec) {
		paths = append(paths, at.String())
	}
	if len(paths) != 7 || paths[0] != "spec.trafficPolicy" || paths[6] != "spec.subsets[2].trafficPolicy.portLevelSettings[1]" {
		t.Errorf("policies of %q, want those of the host, of its port, of two subsets, and of their three ports", paths)
	}
}

func TestDiscoveryOf(t *testing.T) {
	const eds, dns, once, none = model.Resolution_RESOLUTION_EDS, model.Resolution_RESOLUTION_DNS, model.Resolution_RESOLUTION_DNS_ROUND_ROBIN, model.Resolution_RESOLUTION_NONE
	pass := Policy{Balancer: &networkingv1.LoadBalancerSettings{LbPolicy: &networkingv1.LoadBalancerSettings_Simple{Simple: networkingv1.LoadBalancerSettings_PASSTHROUGH}}}
	for _, c := range []struct {
		resolution model.Resolution
		kind       model.Kind
		headless   bool
		policy     Policy
		want       Discovery
	}{
		{eds, model.KindService, false, Policy{}, EDS},
		{eds, model.KindService, true, Policy{}, OriginalDst},
		{eds, model.KindServiceEntry, true, Policy{}, EDS},
		{dns, model.KindServiceEntry, false, Policy{}, StrictDNS},
		{once, model.KindServiceEntry, false, Policy{}, LogicalDNS},
		{none, model.KindServiceEntry, false, Policy{}, OriginalDst},
		{dns, model.KindServiceEntry, false, pass, OriginalDst},
		{eds, model.KindService, false, pass, OriginalDst},
	} {
		r, err := model.New(model.Key{Kind: c.kind, Namespace: "shop", Name: "a"}, 1, &model.ServiceSpec{Hosts: []string{"a"}, Resolution: c.resolution, Headless: c.headless})
		if err != nil {
			t.Fatal(err)
		}
		if got := DiscoveryOf(r.(*model.Service), c.policy); got != c.want {
			t.Errorf("%v: %v", c, got)
		}
	}
}

// A TLS setting that is not possible closes the cluster, and the problem names its field.
func TestTLSOf(t *testing.T) {
	for text, c := range map[string]struct {
		with, without TLS
		code          problem.Code
		field         string
	}{
		"":                                  {AutoEndpoints, Plaintext, "", ""},
		"{mode: DISABLE}":                   {Plaintext, Plaintext, "", ""},
		"{mode: ISTIO_MUTUAL}":              {Mutual, Closed, problem.Required, "spec.trafficPolicy.tls.mode"},
		"{mode: SIMPLE}":                    {Originate, Originate, "", ""},
		"{mode: MUTUAL}":                    {Closed, Closed, problem.Required, "spec.trafficPolicy.tls"},
		"{mode: 9}":                         {Closed, Closed, problem.NotSupported, "spec.trafficPolicy.tls.mode"},
		"{mode: SIMPLE, credentialName: c}": {Closed, Closed, problem.Required, "spec.trafficPolicy.tls.credentialName"},
		"{mode: MUTUAL, clientCertificate: /c.pem, privateKey: /k.pem}": {Originate, Originate, "", ""},
	} {
		p := Policy{}
		if text != "" {
			p = Effective(rule(t, "host: a\ntrafficPolicy: {tls: "+text+"}"), nil, 0, 80)
		}
		for identity, want := range map[bool]TLS{true: c.with, false: c.without} {
			got, wrong := TLSOf(p, Client{Identity: identity}, AutoEndpoints)
			if got != want || (got == Closed) != (wrong != nil) {
				t.Errorf("%q, identity %t: %v, %v", text, identity, got, wrong)
			}
			if wrong != nil && (wrong.Code != c.code || wrong.Field != c.field || wrong.Key.Name != "r") {
				t.Errorf("%q, identity %t: %v %v", text, identity, wrong.Code, wrong)
			}
		}
	}
	p := Effective(rule(t, "host: a\ntrafficPolicy: {tls: {mode: MUTUAL, credentialName: c}}"), nil, 0, 80)
	if got, wrong := TLSOf(p, Client{Secrets: true}, AutoEndpoints); got != Originate || wrong != nil {
		t.Errorf("a Secret that the proxy may ask for: %v, %v", got, wrong)
	}
	foreign := Client{Secrets: true, Foreign: true}
	if got, wrong := TLSOf(p, foreign, AutoEndpoints); got != Closed || wrong == nil || wrong.Code != problem.NotAllowed ||
		wrong.Field != "spec.trafficPolicy.tls.credentialName" {
		t.Errorf("a private key of a Secret, of a rule of another namespace: %v, %v", got, wrong)
	}
	if got, wrong := TLSOf(Effective(rule(t, "host: a\ntrafficPolicy: {tls: {mode: SIMPLE, credentialName: c}}"), nil, 0, 80),
		foreign, AutoEndpoints); got != Originate || wrong != nil {
		t.Errorf("authorities of a Secret, of a rule of another namespace: %v, %v", got, wrong)
	}
	ca := Effective(rule(t, "host: a\ntrafficPolicy: {tls: {mode: SIMPLE, caCertCredentialName: c}}"), nil, 0, 80)
	if got, wrong := TLSOf(ca, Client{Secrets: true}, AutoEndpoints); got != Originate || wrong != nil {
		t.Errorf("authorities of a Secret, of a rule for the proxy: %v, %v", got, wrong)
	}
	for text, field := range map[string]string{"credentialName: 'sds://a'": "credentialName", "credentialName: 'builtin://'": "credentialName",
		"credentialName: a, caCertCredentialName: 'sds://a'": "caCertCredentialName"} {
		none := Effective(rule(t, "host: a\ntrafficPolicy: {tls: {mode: SIMPLE, "+text+"}}"), nil, 0, 80)
		if got, wrong := TLSOf(none, Client{Secrets: true}, AutoEndpoints); got != Closed || wrong == nil || wrong.Field != "spec.trafficPolicy.tls."+field {
			t.Errorf("%s, which nobody serves: %v, %v", text, got, wrong)
		}
	}
	if got, wrong := TLSOf(ca, Client{}, AutoEndpoints); got != Originate || wrong != nil {
		t.Errorf("authorities that are for gateways: %v, %v", got, wrong)
	}
	if got, wrong := TLSOf(p, Client{OwnTLS: true}, AutoEndpoints); got != Plaintext || wrong == nil || wrong.Severity != problem.Warning || wrong.Field != "spec.trafficPolicy.tls.credentialName" {
		t.Errorf("TLS of the application: %v, %v", got, wrong)
	}
}

// The traffic distribution of a service has the effect that it has in istiod: for PreferSameZone, and for PreferClose,
// which means the same, sub-zones are equal.
func TestDistributions(t *testing.T) {
	for distribution, want := range map[model.Distribution]string{
		model.Distribution_DISTRIBUTION_ANY:       "",
		model.Distribution_DISTRIBUTION_SAME_ZONE: "topology.istio.io/network topology.kubernetes.io/region topology.kubernetes.io/zone",
		model.Distribution_DISTRIBUTION_SAME_NODE: "topology.istio.io/network topology.kubernetes.io/region topology.kubernetes.io/zone topology.istio.io/subzone kubernetes.io/hostname",
	} {
		setting := DistributionOf(&model.Service{Spec: &model.ServiceSpec{Distribution: distribution}})
		if text := strings.Join(setting.GetFailoverPriority(), " "); text != want || (setting == nil) != (want == "") {
			t.Errorf("%v: %v, want %q", distribution, setting, want)
		}
	}
}

// Settings of connections in a connection pool replace those of the mesh, value by value for keep-alive; values that
// Envoy would refuse are ignored.
func TestConnectionOf(t *testing.T) {
	for _, c := range []struct{ pool, mesh, want string }{
		{"", "", "timeout 10s"},
		{"", "connectTimeout: 3s", "timeout 3s"},
		{"{tcp: {connectTimeout: 2s}}", "connectTimeout: 3s", "timeout 2s"},
		{"{tcp: {connectTimeout: 0s}}", "connectTimeout: 3s", "timeout 3s"},
		{"", "connectTimeout: -3s", "timeout 10s"},
		{"", "tcpKeepalive: {}", "timeout 10s, TCP keep-alive"},
		{"{tcp: {tcpKeepalive: {time: 5s}}}", "tcpKeepalive: {time: 7s, probes: 2}", "timeout 10s, TCP keep-alive probes 2 time 5"},
		{"{tcp: {tcpKeepalive: {time: -5s, interval: 0.2s}}}", "tcpKeepalive: {time: 7s}", "timeout 10s, TCP keep-alive time 7 interval 1"},
	} {
		if got := ConnectionOf(pool(t, c.pool), mesh(t, c.mesh)).String(); got != c.want {
			t.Errorf("pool %q, mesh %q: %s, want %s", c.pool, c.mesh, got, c.want)
		}
	}
	if got := PassthroughConnection(mesh(t, "connectTimeout: 3s\ndefaultTrafficPolicy: {connectionPool: {tcp: {connectTimeout: 2s}}}")); got.Timeout != 2*time.Second {
		t.Errorf("passing through: %v", got)
	}
	const http, tcp = model.Protocol_PROTOCOL_HTTP, model.Protocol_PROTOCOL_TCP
	for _, c := range []struct {
		pool, mesh string
		protocol   model.Protocol
		want       bool
	}{
		{"", "", http, false},
		{"", "h2UpgradePolicy: UPGRADE", http, true},
		{"", "h2UpgradePolicy: UPGRADE", tcp, false},
		{"{http: {h2UpgradePolicy: DO_NOT_UPGRADE}}", "h2UpgradePolicy: UPGRADE", http, false},
		{"{http: {h2UpgradePolicy: UPGRADE}}", "", tcp, true},
		{"{http: {useClientProtocol: true, h2UpgradePolicy: UPGRADE}}", "h2UpgradePolicy: UPGRADE", http, false},
	} {
		if got := Upgrades(pool(t, c.pool), mesh(t, c.mesh), c.protocol); got != c.want {
			t.Errorf("pool %q, mesh %q, %v: %t", c.pool, c.mesh, c.protocol, got)
		}
	}
}

// pool returns a connection pool in the notation of a rule; nil for an empty text.
func pool(t *testing.T, text string) *networkingv1.ConnectionPoolSettings {
	t.Helper()
	if text == "" {
		return nil
	}
	return rule(t, "host: a\ntrafficPolicy: {connectionPool: "+text+"}").Spec.GetTrafficPolicy().GetConnectionPool()
}
