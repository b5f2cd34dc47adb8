package analysis

import (
	"encoding/base64"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	extensionsv1 "istio.io/api/extensions/v1alpha1"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"
	proxyconfigv1 "istio.io/api/networking/v1beta1"
	securityv1 "istio.io/api/security/v1beta1"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

var bodies = map[model.Kind]func() proto.Message{
	model.KindMesh:    func() proto.Message { return &meshv1.MeshConfig{} },
	model.KindService: func() proto.Message { return &model.ServiceSpec{} }, model.KindServiceEntry: func() proto.Message { return &model.ServiceSpec{} },
	model.KindEndpoints: func() proto.Message { return &model.EndpointsSpec{} }, model.KindWorkload: func() proto.Message { return &model.WorkloadSpec{} },
	model.KindVirtualService: func() proto.Message { return &networkingv1.VirtualService{} }, model.KindDestinationRule: func() proto.Message { return &networkingv1.DestinationRule{} },
	model.KindSidecar: func() proto.Message { return &networkingv1.Sidecar{} }, model.KindEnvoyFilter: func() proto.Message { return &networkingv1.EnvoyFilter{} },
	model.KindGateway: func() proto.Message { return &networkingv1.Gateway{} }, model.KindTelemetry: func() proto.Message { return &telemetryv1.Telemetry{} },
	model.KindWasmPlugin: func() proto.Message { return &extensionsv1.TrafficExtension{} }, model.KindTrafficExtension: func() proto.Message { return &extensionsv1.TrafficExtension{} },
	model.KindPeerAuthentication: func() proto.Message { return &model.PolicySpec{} }, model.KindAuthorizationPolicy: func() proto.Message { return &model.PolicySpec{} },
	model.KindRequestAuthentication: func() proto.Message { return &model.PolicySpec{} },
	model.KindProxyConfig:           func() proto.Message { return &proxyconfigv1.ProxyConfig{} },
}

// record returns a record for "Kind namespace/name YAML"; older records have names earlier in the alphabet.
func record(t testing.TB, text string) model.Record {
	t.Helper()
	head, body, _ := strings.Cut(text, " {")
	kind, path, _ := strings.Cut(head, " ")
	namespace, name, _ := strings.Cut(path, "/")
	key := model.Key{Namespace: namespace, Name: name}
	for of := range bodies {
		if of.String() == kind {
			key.Kind = of
		}
	}
	if key.Kind == model.KindMesh {
		key = model.MeshKey
	}
	message := bodies[key.Kind]()
	raw, err := yaml.YAMLToJSON([]byte("{" + body))
	if err == nil {
		err = protojson.Unmarshal(raw, message)
	}
	var r model.Record
	if err == nil {
		r, err = model.New(key, 1, message)
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

// lines are problems as "Kind name field Code IST0101".
func lines(t testing.TB, all []object.Problem) (out []string) {
	for _, p := range all {
		if p.Severity != problem.Warning || p.Message == "" || p.Analyzer != "" && p.Analyzer.Name() == "" {
			t.Errorf("%+v is no warning, says nothing, or has a code without a name", p)
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s", p.ID.Kind, p.ID.Name, p.Field, p.Code, p.Analyzer)))
	}
	return out
}

const (
	web    = "Service shop/web {hosts: [web.shop], exportTo: ['*'], ports: [{number: 80, name: http}]}"
	pod    = "Workload shop/pod {endpoint: {labels: {app: web, version: v1}}}"
	routes = "exportTo: ['*'], gateways: [mesh], http: [{route: [{destination: {host: web.shop}}]}]"
)

// Each warning with the records that cause it, and with its remedy: a record that is added or, with a minus, removed.
func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		name    string
		records []string
		mend    string
		want    []string
	}{
		{"destination without a service", []string{"VirtualService shop/v {hosts: [x.shop], " + routes + "}"}, web,
			[]string{"VirtualService v spec.http[0].route[0].destination.host NotFound IST0101"}},
		{"a wildcard's service", []string{"VirtualService shop/v {hosts: [x.shop], " + routes + "}"}, "ServiceEntry shop/wild {hosts: ['*.shop'], exportTo: ['*'], ports: [{number: 80, name: http}]}",
			[]string{"VirtualService v spec.http[0].route[0].destination.host NotFound IST0101"}},
		{"mirror, tls and tcp", []string{web, "VirtualService shop/v {hosts: [x.shop], gateways: [mesh], http: [{mirror: {host: a}, route: [{destination: {host: web.shop}}]}], tls: [{route: [{destination: {host: a}}]}], tcp: [{route: [{destination: {host: a}}]}]}"},
			"Service shop/a {hosts: [a], ports: [{number: 80}]}",
			[]string{"VirtualService v spec.http[0].mirror.host NotFound IST0101", "VirtualService v spec.tcp[0].route[0].destination.host NotFound IST0101", "VirtualService v spec.tls[0].route[0].destination.host NotFound IST0101"}},
		{"port", []string{web, "VirtualService shop/v {hosts: [x.shop], gateways: [mesh], http: [{route: [{destination: {host: web.shop, port: {number: 81}}}]}]}"},
			"Service shop/web {hosts: [web.shop], ports: [{number: 81}]}", []string{"VirtualService v spec.http[0].route[0].destination.port.number NotFound IST0101"}},
		{"subset without a rule", []string{web, "VirtualService shop/v {hosts: [x.shop], gateways: [mesh], http: [{route: [{destination: {host: web.shop, subset: v1}}]}]}"},
			"DestinationRule shop/r {host: '*.shop', subsets: [{name: v1}]}", []string{"VirtualService v spec.http[0].route[0].destination.subset NotFound IST0101"}},
		{"subset that no rule has", []string{web, "DestinationRule shop/r {host: web.shop, subsets: [{name: v2}]}", "VirtualService shop/v {hosts: [x.shop], gateways: [mesh], http: [{route: [{destination: {host: web.shop, subset: v1}}]}]}"},
			"DestinationRule shop/r {host: web.shop, subsets: [{name: v1}]}", []string{"VirtualService v spec.http[0].route[0].destination.subset NotFound IST0101"}},
		{"rule without a service", []string{"DestinationRule shop/r {host: web.shop}"}, web, []string{"DestinationRule r spec.host NotFound IST0174"}},
		{"rule for a wildcard", []string{"DestinationRule shop/r {host: '*.shop'}"}, web, nil},
		{"one host, two VirtualServices", []string{web, "VirtualService shop/a {hosts: [x.shop], " + routes + "}", "VirtualService shop/b {hosts: [x.shop], " + routes + "}"},
			"-VirtualService shop/a {}", []string{"VirtualService b spec.hosts Duplicate IST0109"}},
		{"one host, the older one for all", []string{web, "VirtualService shop/a {hosts: [x.shop], " + routes + "}", "VirtualService shop/b {hosts: [x.shop], " + strings.Replace(routes, "*", "shop", 1) + "}"},
			"-VirtualService shop/b {}", []string{"VirtualService a spec.hosts Duplicate IST0109"}},
		{"one host, for namespaces that differ", []string{web, "VirtualService shop/a {hosts: [x.shop], gateways: [mesh], exportTo: [a]}", "VirtualService shop/b {hosts: [x.shop], gateways: [mesh], exportTo: [b]}"}, "", nil},
		{"one host, behind a gateway", []string{web, "Gateway shop/gw {servers: [{hosts: ['*']}]}", "VirtualService shop/a {hosts: [x.shop], gateways: [shop/gw]}", "VirtualService shop/b {hosts: [x.shop], gateways: [shop/gw]}"}, "", nil},
		{"two rules", []string{web, "DestinationRule shop/a {host: web.shop}", "DestinationRule shop/b {host: web.shop}"}, "DestinationRule shop/b {host: web.shop, workloadSelector: {}}", []string{"DestinationRule b spec.host Duplicate"}},
		{"two rules, of which one is for more", []string{web, "DestinationRule shop/a {host: web.shop, exportTo: [a]}", "DestinationRule shop/b {host: web.shop, exportTo: [a, b]}"}, "-DestinationRule shop/a {}", []string{"DestinationRule b spec.host Duplicate"}},
		{"two rules for all and for some", []string{web, "DestinationRule shop/a {host: web.shop, exportTo: ['*']}", "DestinationRule shop/b {host: web.shop, exportTo: [b]}"}, "-DestinationRule shop/a {}", []string{"DestinationRule b spec.host Duplicate"}},
		{"two rules for others", []string{web, "DestinationRule shop/a {host: web.shop, exportTo: [a]}", "DestinationRule shop/b {host: web.shop, exportTo: [b]}"}, "", nil},
		{"a service, and an entry", []string{web, "ServiceEntry shop/web {hosts: [web.shop], exportTo: ['*'], ports: [{number: 80}]}"}, "-" + web, []string{"ServiceEntry web spec.hosts Duplicate"}},
		{"a service, and an older entry", []string{"ServiceEntry shop/a {hosts: [web.shop], exportTo: ['*'], ports: [{number: 80}, {number: 81}]}", web}, "-ServiceEntry shop/a {}", []string{"ServiceEntry a spec.hosts Duplicate"}},
		{"a service, and an entry that other namespaces see", []string{"ServiceEntry shop/a {hosts: [web.shop], exportTo: [a]}", "Service shop/web {hosts: [web.shop], exportTo: [b]}"}, "", nil},
		{"a service, and another namespace's entry", []string{"ServiceEntry other/a {hosts: [web.shop], exportTo: ['*']}", web}, "ServiceEntry other/a {hosts: [web.shop], exportTo: [other]}", []string{"ServiceEntry a spec.hosts Duplicate"}},
		{"two entries that are resolved otherwise", []string{"ServiceEntry shop/a {hosts: [x], exportTo: ['*'], resolution: RESOLUTION_DNS}", "ServiceEntry shop/b {hosts: [x], exportTo: [shop], resolution: RESOLUTION_EDS}"}, "-ServiceEntry shop/a {}",
			[]string{"ServiceEntry b spec.hosts Duplicate"}},
		{"two entries that nobody sees together", []string{"ServiceEntry shop/a {hosts: [x], exportTo: [a]}", "ServiceEntry shop/b {hosts: [x], exportTo: [b]}"}, "", nil},
		{"entries of two namespaces", []string{"ServiceEntry one/b {hosts: [x, z], exportTo: ['*'], resolution: RESOLUTION_DNS}", "ServiceEntry two/a {hosts: [x], exportTo: [third], resolution: RESOLUTION_EDS}"},
			"ServiceEntry two/a {hosts: [x], exportTo: ['~', one, two], resolution: RESOLUTION_EDS}", []string{"ServiceEntry a spec.hosts Duplicate"}},
		{"entries of two namespaces that say the same", []string{"ServiceEntry one/b {hosts: [x], exportTo: ['*'], resolution: RESOLUTION_DNS}", "ServiceEntry two/a {hosts: [x], exportTo: ['*'], resolution: RESOLUTION_DNS}",
			"Endpoints one/serviceentry:b:1 {hosts: [x], endpoints: [{address: 192.0.2.1, namespace: one}]}", "Endpoints two/serviceentry:a:1 {hosts: [x], endpoints: [{address: 192.0.2.1, namespace: two}]}"}, "", nil},
		{"entries of two namespaces with other endpoints", []string{"ServiceEntry one/b {hosts: [x], exportTo: ['*']}", "ServiceEntry two/a {hosts: [x], exportTo: ['*']}", "Endpoints one/serviceentry:b:1 {hosts: [x], endpoints: [{address: 192.0.2.1}]}"},
			"Endpoints two/serviceentry:a:1 {hosts: [x], endpoints: [{address: 192.0.2.1}]}", []string{"ServiceEntry a spec.hosts Duplicate"}},
		{"two protocols", []string{"ServiceEntry a/x {hosts: [a], exportTo: ['*'], ports: [{number: 80, protocol: PROTOCOL_HTTP}]}", "ServiceEntry b/y {hosts: [a], exportTo: [c], ports: [{number: 80, protocol: PROTOCOL_TCP}]}"},
			"ServiceEntry a/x {hosts: [a], exportTo: [a], ports: [{number: 80, protocol: PROTOCOL_HTTP}]}", []string{"ServiceEntry y spec.ports Duplicate IST0177"}},
		{"no Gateway", []string{web, "VirtualService shop/v {hosts: [x.shop], gateways: [edge/gw], http: [{route: [{destination: {host: web.shop}}]}]}"}, "Gateway edge/gw {servers: [{hosts: ['shop/*.shop']}]}",
			[]string{"VirtualService v spec.gateways NotFound IST0101"}},
		{"Gateway of istiod's own", []string{web, "VirtualService shop/v {hosts: [x.shop], gateways: [edge/gw-istio-autogenerated-k8s-gateway-default], http: [{route: [{destination: {host: web.shop}}]}]}"}, "",
			[]string{"VirtualService v spec.gateways NotFound IST0165"}},
		{"one host of the Gateway, beside one for sidecars", []string{web, "Gateway edge/gw {servers: [{hosts: [x.shop]}]}", "VirtualService shop/v {hosts: [x.shop, web.shop], gateways: [edge/gw, mesh], http: [{route: [{destination: {host: web.shop}}]}]}"}, "", nil},
		{"no host of the Gateway, for sidecars too", []string{web, "Gateway edge/gw {servers: [{hosts: [y.shop]}]}", "VirtualService shop/v {hosts: [x.shop], gateways: [edge/gw, mesh], http: [{route: [{destination: {host: web.shop}}]}]}"},
			"Gateway edge/gw {servers: [{hosts: ['*/x.shop']}]}", []string{"VirtualService v spec.hosts NotFound IST0132"}},
		{"no host of the Gateway", []string{web, "Gateway edge/gw {servers: [{hosts: ['./x.shop', y.shop]}]}", "VirtualService shop/v {hosts: [x.shop], gateways: [edge/gw], http: [{route: [{destination: {host: web.shop}}]}]}"},
			"Gateway edge/gw {servers: [{hosts: ['*/x.shop']}]}", []string{"VirtualService v spec.hosts NotFound IST0132"}},
		{"subset that no endpoint has", []string{web, "Endpoints shop/web {hosts: [web.shop], endpoints: [{address: 10.0.0.1, labels: {version: v1}}]}", "DestinationRule shop/r {host: web.shop, subsets: [{name: one, labels: {version: v1}}, {name: two, labels: {version: v2}}]}"},
			"Endpoints shop/more {hosts: [web.shop], endpoints: [{address: 10.0.0.2, labels: {version: v2}}]}", []string{"DestinationRule r spec.subsets[1].labels NotFound IST0173"}},
		{"subset by where endpoints are", []string{web, "Endpoints shop/web {hosts: [web.shop], endpoints: [{address: 10.0.0.1, cluster: west}]}", "DestinationRule shop/r {host: web.shop, subsets: [{name: one, labels: {topology.istio.io/cluster: west}}, {name: two, labels: {topology.istio.io/cluster: east}}]}"},
			"Endpoints shop/more {hosts: [web.shop], endpoints: [{address: 10.0.0.2, cluster: east}]}", []string{"DestinationRule r spec.subsets[1].labels NotFound IST0173"}},
		{"subset of a host without endpoints", []string{web, "DestinationRule shop/r {host: web.shop, subsets: [{name: one, labels: {version: v1}}]}"}, "", nil},
		{"subset of selected workloads", []string{pod, "ServiceEntry shop/e {hosts: [e.shop], selector: {app: web}, ports: [{number: 80}]}", "DestinationRule shop/r {host: e.shop, subsets: [{name: two, labels: {version: v2}}]}"},
			"Workload shop/two {endpoint: {labels: {app: web, version: v2}}}", []string{"DestinationRule r spec.subsets[0].labels NotFound IST0173"}},
	} {
		warns(t, c.name, c.records, c.mend, c.want)
	}
}

// warns checks that records have these warnings, and none once they are mended.
func warns(t *testing.T, name string, records []string, mend string, want []string) {
	t.Helper()
	a, all := New(Settings{}), map[model.Key]model.Record{}
	put := func(text string) {
		text, gone := strings.CutPrefix(text, "-")
		r := record(t, text)
		edit := Edit{Old: all[r.Meta().Key], New: r}
		if all[r.Meta().Key] = r; gone {
			delete(all, r.Meta().Key)
			edit.New = nil
		}
		a.Step([]Edit{edit})
		if whole := Of(Settings{}, maps.Values(all)).Problems(); !slices.Equal(whole, a.Problems()) {
			t.Errorf("%s: step by step %v, from scratch %v", name, a.Problems(), whole)
		}
	}
	for _, text := range records {
		put(text)
	}
	if got := lines(t, a.Problems()); !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", name, got, want)
	}
	appliesTheSame(t, name, all)
	if mend != "" {
		put(mend)
		if got := lines(t, a.Problems()); len(got) > 0 {
			t.Errorf("%s: mended, and still %q", name, got)
		}
	}
}

// appliesTheSame checks that Applied returns for each record the warnings that it has once stored, except those that
// depend on workloads.
func appliesTheSame(t *testing.T, name string, all map[model.Key]model.Record) {
	t.Helper()
	stored := Of(Settings{}, maps.Values(all))
	for key, record := range all {
		want := &examination{unit: &unit{record: record}, of: stored, read: map[fact]bool{}, watched: map[*watch]bool{}}
		want.run(examiners[key.Kind])
		if got := Applied(record, known(all)); !slices.Equal(got, want.problems) {
			t.Errorf("%s: applied %v, stored %v", name, got, want.problems)
		}
	}
}

// Selectors that match no workload, by kind: how far each reaches, and the code.
func TestSelectorsWithoutWorkload(t *testing.T) {
	other := "Workload other/pod {endpoint: {labels: {app: db}}}"
	for _, c := range []struct {
		record, want string
		mesh         bool // in the root namespace it selects in all namespaces
	}{
		{"Sidecar %s/x {workloadSelector: {labels: {app: web}}}", "spec.workloadSelector.labels NoEffect IST0101", false},
		{"Telemetry %s/x {selector: {matchLabels: {app: web}}}", "spec.selector.matchLabels NoEffect IST0101", false},
		{"PeerAuthentication %s/x {selector: {app: web}}", "spec.selector.matchLabels NoEffect IST0127", false},
		{"AuthorizationPolicy %s/x {selector: {app: web}}", "spec.selector.matchLabels NoEffect IST0127", true},
		{"RequestAuthentication %s/x {selector: {app: web, version: v1}}", "spec.selector.matchLabels NoEffect IST0127", true},
		{"EnvoyFilter %s/x {workloadSelector: {labels: {app: web}}}", "spec.workloadSelector.labels NoEffect IST0127", true},
		{"WasmPlugin %s/x {selector: {matchLabels: {app: web}}}", "spec.selector.matchLabels NoEffect IST0127", true},
		{"TrafficExtension %s/x {selector: {matchLabels: {app: web}}}", "spec.selector.matchLabels NoEffect IST0127", true},
		{"ProxyConfig %s/x {selector: {matchLabels: {app: web}}}", "spec.selector.matchLabels NoEffect IST0127", false},
		{"ServiceEntry %s/x {selector: {app: web}}", "spec.workloadSelector.labels NoEffect IST0127", false},
	} {
		kind, _, _ := strings.Cut(c.record, " ")
		said := []string{kind + " x " + c.want}
		shop, root := fmt.Sprintf(c.record, "shop"), fmt.Sprintf(c.record, "istio-system")
		warns(t, kind, []string{other, shop}, pod, said)
		warns(t, kind+", no workload is known", []string{shop}, "", nil)
		warns(t, kind+", the workload leaves", []string{other, pod, shop, "-" + pod}, pod, said)
		warns(t, kind+", the workload has other labels", []string{other, pod, shop, "Workload shop/pod {endpoint: {labels: {app: weblog}}}"}, "-"+shop, said)
		if c.mesh {
			said = nil
		}
		warns(t, kind+" in the root namespace", []string{pod, root}, "-"+root, said)
		warns(t, kind+" in what is the root namespace no more", []string{pod, root, "Mesh /mesh {rootNamespace: elsewhere}"}, "Workload istio-system/pod {endpoint: {labels: {app: web, version: v1}}}", []string{kind + " x " + c.want})
	}
	gateway := "Gateway edge/x {selector: {app: web}}"
	warns(t, "Gateway", []string{other, gateway}, pod, []string{"Gateway x spec.selector NoEffect IST0101"})
	rule := "DestinationRule shop/x {host: web.shop, workloadSelector: {matchLabels: {app: web}}}"
	warns(t, "DestinationRule", []string{other, web, rule}, pod, []string{"DestinationRule x spec.workloadSelector.matchLabels NoEffect IST0127"})
	warns(t, "a policy that could not be understood", []string{other, "AuthorizationPolicy shop/x {closed: true, selector: {app: web}}"}, "", nil)
	warns(t, "targetRefs", []string{other, "EnvoyFilter shop/x {targetRefs: [{kind: Gateway, name: x}]}"}, "", nil)
	labelled := "Workload shop/gw {endpoint: {labels: {gateway.networking.k8s.io/gateway-name: gw}}}"
	for kind, spec := range map[string]string{
		"AuthorizationPolicy":   "{gateways: [gw], selector: {gateway.networking.k8s.io/gateway-name: gw}}",
		"RequestAuthentication": "{gateways: [gw], selector: {gateway.networking.k8s.io/gateway-name: gw}}",
		"EnvoyFilter":           "{targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gw}]}",
		"TrafficExtension":      "{targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gw}]}",
		"WasmPlugin":            "{targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gw}]}",
		"Telemetry":             "{targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gw}]}",
	} {
		warns(t, kind+" of a Gateway of the Gateway API", []string{other, kind + " shop/x " + spec}, labelled,
			[]string{kind + " x spec.targetRefs NoEffect IST0127"})
		warns(t, kind+" without workloads", []string{kind + " shop/x " + spec}, "", nil)
	}
}

// portLevel is the encoded message of a PeerAuthentication with a mode for one port, as YAML has bytes.
func portLevel(t testing.TB, port uint32) string {
	t.Helper()
	raw, err := proto.Marshal(&securityv1.PeerAuthentication{PortLevelMtls: map[uint32]*securityv1.PeerAuthentication_MutualTLS{port: {Mode: securityv1.PeerAuthentication_MutualTLS_STRICT}}})
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// A port of portLevelMtls is one that workloads have: of a service's target, of endpoints, of a Sidecar's listener.
// Where a service that selects them has it as its own port, the warning names that.
func TestPortsOfPortLevelMtls(t *testing.T) {
	policy := func(port uint32) string {
		return fmt.Sprintf("PeerAuthentication shop/p {selector: {app: web}, istio: %s}", portLevel(t, port))
	}
	said := func(port int) []string {
		return []string{fmt.Sprintf("PeerAuthentication p spec.portLevelMtls[%d] NoEffect", port)}
	}
	const service = "Service shop/web {hosts: [web.shop], selector: {app: web}, ports: [{number: 80, targetNumber: 8080}, {number: 90, targetName: named}]}"
	warns(t, "the service's port", []string{pod, service, policy(80)}, policy(8080), said(80))
	warns(t, "another workload's", []string{pod, service, "Workload shop/q {endpoint: {labels: {app: db}}}", "Service shop/db {hosts: [db.shop], selector: {app: db}, ports: [{number: 70}]}", policy(70)},
		"Service shop/more {hosts: [more.shop], selector: {version: v1}, ports: [{number: 70}]}", said(70))
	warns(t, "a name", []string{pod, service, policy(9090)}, "Endpoints shop/web {hosts: [web.shop], ports: [{name: named, number: 9090}], endpoints: [{address: 10.0.0.1, labels: {app: web}}]}", said(9090))
	warns(t, "an endpoint of others", []string{pod, service, policy(9090), "Endpoints shop/db {hosts: [db.shop], ports: [{number: 9090}], endpoints: [{address: 10.0.0.2, labels: {app: db}}]}"}, policy(8080), said(9090))
	warns(t, "a Sidecar's listener", []string{pod, policy(7070)}, "Sidecar shop/s {workloadSelector: {labels: {app: web}}, ingress: [{port: {number: 7070}}]}", said(7070))
	warns(t, "no workload is known", []string{service, policy(80)}, "", nil)
	named := "Service shop/web {hosts: [web.shop], selector: {app: web}, ports: [{number: 80, targetNumber: 8080}]}"
	all := slices.Values([]model.Record{record(t, pod), record(t, named), record(t, policy(80))})
	if got := Of(Settings{}, all).Problems(); len(got) != 1 ||
		!strings.HasSuffix(got[0].Message, "80 is a port of Service shop/web, whose target port is 8080") {
		t.Errorf("%v", got)
	}
}

// Routes to a service without a ready endpoint, once endpoints are known at all.
func TestRoutesWithoutEndpoints(t *testing.T) {
	const db, ready = "Service shop/db {hosts: [db.shop], exportTo: ['*'], ports: [{number: 80}]}", "Endpoints shop/db {hosts: [db.shop], endpoints: [{address: 10.0.0.2}]}"
	const some = "Endpoints shop/web {hosts: [web.shop], endpoints: [{address: 10.0.0.1}]}"
	to := func(rules string) string {
		return "VirtualService shop/v {hosts: [v.shop], gateways: [shop/g], " + rules + "}"
	}
	const gateway = "Gateway shop/g {servers: [{hosts: [v.shop]}]}"
	route := to("http: [{route: [{destination: {host: db.shop}}]}]")
	at := func(path string) []string {
		return []string{"VirtualService v spec." + path + ".destination.host NotFound NAV1001"}
	}
	const rule = "DestinationRule shop/r {host: web.shop, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}"
	canary := func(health string, weight int) []string {
		return []string{web, gateway, rule, "Endpoints shop/v1 {hosts: [web.shop], endpoints: [{address: 10.0.0.1, labels: {version: v1}}]}",
			"Endpoints shop/v2 {hosts: [web.shop], endpoints: [{address: 10.0.0.2, health: " + health + ", labels: {version: v2}}]}",
			to(fmt.Sprintf("http: [{route: [{destination: {host: web.shop, subset: v1}, weight: 90}, {destination: {host: web.shop, subset: v2}, weight: %d}]}]", weight))}
	}
	subset := []string{"VirtualService v spec.http[0].route[1].destination.subset NotFound NAV1001"}
	for _, c := range []struct {
		name    string
		records []string
		mend    string
		want    []string
	}{
		{"no endpoints", []string{web, some, db, gateway, route}, ready, at("http[0].route[0]")},
		{"no ready endpoint", []string{web, some, db, gateway, route, "Endpoints shop/db {hosts: [db.shop], endpoints: [{address: 10.0.0.2, health: HEALTH_NOT_READY}, {address: 10.0.0.3, health: HEALTH_DRAINING}]}"}, ready, at("http[0].route[0]")},
		{"they leave", []string{web, some, db, gateway, ready, route, "-" + ready}, ready, at("http[0].route[0]")},
		{"of two slices one leaves", []string{web, some, db, gateway, ready, "Endpoints shop/more {hosts: [db.shop], endpoints: [{address: 10.0.0.4}]}", route, "-" + ready}, "", nil},
		{"endpoints are not known", []string{web, db, gateway, route}, "", nil},
		{"only a ServiceEntry has some", []string{web, db, gateway, route, "Endpoints shop/serviceentry:x {hosts: [x.shop], endpoints: [{address: 10.0.0.2}]}"}, "", nil},
		{"endpoints of another namespace are known", []string{web, "Endpoints other/web {hosts: [web.other], endpoints: [{address: 10.0.0.1}]}", db, gateway, route}, "", nil},
		{"no endpoint of the namespace is ready", []string{db, "Endpoints shop/db {hosts: [db.shop]}", gateway, route}, ready, at("http[0].route[0]")},
		{"weight 0", []string{web, some, db, gateway, to("http: [{route: [{destination: {host: db.shop}}, {destination: {host: web.shop}, weight: 100}]}]")}, "", nil},
		{"weight 0 of tls", []string{web, some, db, gateway, to("tls: [{route: [{destination: {host: db.shop}}, {destination: {host: web.shop}, weight: 100}]}]")}, "", nil},
		{"tls and tcp", []string{web, some, db, gateway, to("tls: [{route: [{destination: {host: web.shop}}]}], tcp: [{route: [{destination: {host: db.shop}}]}]")}, ready, at("tcp[0].route[0]")},
		{"a mirror", []string{web, some, db, gateway, to("http: [{route: [{destination: {host: web.shop}}], mirror: {host: db.shop}}]")}, "", nil},
		{"an entry that is resolved", []string{web, some, gateway, "ServiceEntry shop/db {hosts: [db.shop], exportTo: ['*'], resolution: RESOLUTION_DNS, ports: [{number: 80}]}", route}, "", nil},
		{"an entry that selects", []string{web, some, gateway, "ServiceEntry shop/db {hosts: [db.shop], exportTo: ['*'], selector: {app: web}, ports: [{number: 80}]}", "Workload shop/p {endpoint: {labels: {app: web}}}", route}, "", nil},
		{"an entry that selects nothing", []string{web, some, gateway, "Workload other/p {endpoint: {labels: {app: web}}}", "ServiceEntry shop/db {hosts: [db.shop], exportTo: ['*'], selector: {version: v1}, ports: [{number: 80}]}", route}, pod, []string{"ServiceEntry db spec.workloadSelector.labels NoEffect IST0127", "VirtualService v spec.http[0].route[0].destination.host NotFound NAV1001"}},
		{"a subset of which none is ready", canary("HEALTH_NOT_READY", 10), "Endpoints shop/more {hosts: [web.shop], endpoints: [{address: 10.0.0.3, labels: {version: v2}}]}", subset},
		{"a subset that has gone", append(canary("HEALTH_READY", 10), "-Endpoints shop/v2 {}", "-DestinationRule shop/r {}", "DestinationRule shop/r {host: '*.shop', subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v3}}]}"),
			"Endpoints shop/more {hosts: [web.shop], endpoints: [{address: 10.0.0.3, labels: {version: v3}}]}", subset},
		{"a subset of which one is ready", append(canary("HEALTH_READY", 10), "Endpoints shop/v3 {hosts: [web.shop], endpoints: [{address: 10.0.0.3, health: HEALTH_NOT_READY, labels: {version: v2}}]}"), "", nil},
		{"a subset of weight 0", canary("HEALTH_NOT_READY", 0), "", nil},
		{"a subset that another rule gives ready endpoints", append(canary("HEALTH_NOT_READY", 10), "DestinationRule shop/s {host: '*.shop', subsets: [{name: v2, labels: {version: v1}}]}"), "", nil},
		{"a subset of an entry that selects", []string{"ServiceEntry shop/web {hosts: [web.shop], exportTo: ['*'], selector: {app: web}, ports: [{number: 80}]}", "Workload shop/p {endpoint: {labels: {app: web, version: v2}}}", "Workload shop/q {endpoint: {labels: {app: web, version: v1}}}",
			gateway, rule, to("http: [{route: [{destination: {host: web.shop, subset: v2}}]}]")}, "", nil},
		{"an alias", []string{web, some, db, gateway, "Service shop/a {hosts: [a.shop], exportTo: ['*'], resolution: RESOLUTION_DNS, aliasFor: db.shop, ports: [{number: 80}]}", to("http: [{route: [{destination: {host: a.shop}}]}]")}, ready, at("http[0].route[0]")},
		{"an alias of the outside", []string{web, some, gateway, "Service shop/a {hosts: [a.shop], exportTo: ['*'], resolution: RESOLUTION_DNS, aliasFor: a.example.com, ports: [{number: 80}]}", to("http: [{route: [{destination: {host: a.shop}}]}]")}, "", nil},
	} {
		warns(t, c.name, c.records, c.mend, c.want)
	}
}

// known is records as Applied has them.
type known map[model.Key]model.Record

func (k known) Mesh() *model.Mesh { return model.DefaultMesh() }
func (k known) All(kind model.Kind) iter.Seq[model.Record] {
	return k.where(func(r model.Record) bool { return r.Meta().Key.Kind == kind })
}
func (k known) In(kind model.Kind, namespace string) iter.Seq[model.Record] {
	return k.where(func(r model.Record) bool { return r.Meta().Key.Kind == kind && r.Meta().Key.Namespace == namespace })
}
func (k known) ByHost(kind model.Kind, host string) iter.Seq[model.Record] {
	return k.where(func(r model.Record) bool {
		return r.Meta().Key.Kind == kind && slices.ContainsFunc(givers[kind], func(give giver) bool {
			for f := range give(r) {
				if f.name == host {
					return true
				}
			}
			return false
		})
	})
}
func (k known) where(is func(model.Record) bool) iter.Seq[model.Record] {
	return func(yield func(model.Record) bool) {
		for _, r := range k {
			if is(r) && !yield(r) {
				return
			}
		}
	}
}

// Several records of a kind of which one has an effect: for all workloads of a namespace, and for workloads that both
// select.
func TestOneOfSeveralCounts(t *testing.T) {
	for _, c := range []struct{ kind, general, selecting, field, several, twice string }{
		{"Sidecar", "{}", "{workloadSelector: {labels: {%s}}}", "spec.workloadSelector", " IST0111", " IST0110"},
		{"Telemetry", "{}", "{selector: {matchLabels: {%s}}}", "spec.selector", " IST0160", " IST0159"},
		{"PeerAuthentication", "{}", "{selector: {%s}}", "spec.selector", "", ""},
	} {
		labels := map[string]string{"Sidecar": ".labels"}[c.kind]
		if labels == "" {
			labels = ".matchLabels"
		}
		one := func(namespace, name, selector string) string {
			return c.kind + " " + namespace + "/" + name + " " + strings.Replace(c.selecting, "%s", selector, 1)
		}
		warns(t, c.kind, []string{c.kind + " shop/a " + c.general, c.kind + " shop/b " + c.general, c.kind + " other/c " + c.general}, "-"+c.kind+" shop/a {}",
			[]string{c.kind + " b " + c.field + " Duplicate" + c.several})
		twice := []string{c.kind + " b " + c.field + labels + " Duplicate" + c.twice}
		warns(t, c.kind+", the same labels", []string{pod, one("shop", "a", "app: web"), one("shop", "b", "app: web")}, "-"+one("shop", "b", ""), twice)
		warns(t, c.kind+", one workload has both", []string{pod, "Workload shop/q {endpoint: {labels: {app: web}}}", "Workload shop/p {endpoint: {labels: {version: v1}}}", one("shop", "a", "app: web"), one("shop", "b", "version: v1")}, "-"+pod, twice)
		warns(t, c.kind+", no workload has both", []string{pod, "Workload shop/p {endpoint: {labels: {app: db}}}", one("shop", "a", "app: web"), one("shop", "b", "app: db")}, "", nil)
	}
}
