package telemetry

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	meshv1 "istio.io/api/mesh/v1alpha1"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"
	"sigs.k8s.io/yaml"

	build "navarch.io/navarch/push/build/telemetry"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// rec returns a record of YAML; a number after @ is its time of creation.
func rec(t *testing.T, kind model.Kind, name, text string) model.Record {
	t.Helper()
	var body proto.Message = &model.ServiceSpec{}
	switch kind {
	case model.KindMesh:
		body = model.MeshDefaults()
	case model.KindTelemetry:
		body = &telemetryv1.Telemetry{}
	default: // a Service
	}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil && kind == model.KindMesh { // it overwrites the defaults
		stated := model.MeshDefaults()
		proto.Reset(stated)
		err = protojson.Unmarshal(raw, stated)
		proto.Merge(body, stated)
	} else if err == nil {
		err = protojson.Unmarshal(raw, body)
	}
	if err != nil {
		t.Fatal(err)
	}
	var created int64
	name, at, _ := strings.Cut(name, "@")
	fmt.Sscan(at, &created)
	namespace, short, _ := strings.Cut(name, "/")
	r, err := model.New(model.Key{Kind: kind, Namespace: namespace, Name: short}, created, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const providers = `extensionProviders:
- {name: text, envoyFileAccessLog: {path: /dev/stdout}}
- {name: calls, envoyHttpAls: {service: logs.obs.svc.cluster.local, port: 9000}}
- {name: lost, envoyTcpAls: {service: gone.obs.svc.cluster.local, port: 9000}}
- {name: closed, envoyTcpAls: {service: logs.obs.svc.cluster.local, port: 1}}
- {name: twice, envoyTcpAls: {service: twice.example.com, port: 9000}}
- {name: one, envoyTcpAls: {service: obs/twice.example.com, port: 9000}}
- {name: spans, zipkin: {service: logs.obs.svc.cluster.local, port: 9000, maxTagLength: 9}}
- {name: sampled, opentelemetry: {service: logs.obs.svc.cluster.local, port: 9000, http: {path: /}, dynatraceSampler: {tenant: t}}}
- {name: numbers, prometheus: {}}
`

// oneInHundred is the tracing of proxies that no configuration applies to and that report no tracer.
var oneInHundred = build.Tracing{On: true, RequestID: true, Sampling: 1}

// String returns the reports in one line, without oneInHundred.
func (r Reports) String() string {
	var out []string
	for _, l := range r.Spec.Logs.All() {
		line := l.Provider
		if l.To.Cluster != "" {
			line += ">" + l.To.Cluster
		}
		if l.Filter != "" {
			line += " if " + l.Filter
		}
		if l.Disabled {
			line = "no " + line
		}
		out = append(out, line)
	}
	if t := r.Spec.Tracing; t.On && t != oneInHundred {
		names := []string{}
		for _, tag := range t.Tags.All() {
			if !strings.HasPrefix(tag.Name, "istio.authorization") {
				names = append(names, tag.Name+"="+tag.Value)
			}
		}
		out = append(out, fmt.Sprintf("spans to %s %g%% %v max %d", t.Provider, t.Sampling, names, t.MaxPathTagLength))
	}
	if m := r.Spec.Metrics; m.Said {
		out = append(out, fmt.Sprintf("metrics off=%v %v", m.Off, m.Overrides.All()))
	}
	for _, p := range r.Problems {
		out = append(out, p.Key.Name+" "+p.Field+": "+p.Message)
	}
	return strings.Join(out, "; ")
}

// decide returns the reports of the inbound and outbound listeners of proxies of namespace shop. The specs are the
// Telemetries of the root namespace, of the namespace, and of a selector that selects the proxies; an empty or missing
// one does not exist.
func decide(t *testing.T, mesh string, sends bool, specs ...string) (client, server string) {
	t.Helper()
	service := "{hosts: [%s], exportTo: ['*'], ports: [{number: 9000, name: grpc}]}"
	records := []model.Record{rec(t, model.KindMesh, "/mesh", providers+mesh),
		rec(t, model.KindService, "obs/logs", fmt.Sprintf(service, "logs.obs.svc.cluster.local")),
		rec(t, model.KindServiceEntry, "obs/twice", fmt.Sprintf(service, "twice.example.com")), rec(t, model.KindServiceEntry, "shop/twice", fmt.Sprintf(service, "twice.example.com"))}
	p := Proxy{Visibility: host.Visibility{Namespace: "shop", Imports: []*host.Imports{host.ImportAll()}}, Caps: xds.StockCaps | xds.CapIstioStats}
	p.Self = view.Self{Sends: sends, Name: "web.shop", Service: "web"}
	for i, spec := range specs {
		name := []string{"istio-system/root@2", "shop/all@2", "shop/picked@2"}[i]
		if spec != "" {
			records = append(records, rec(t, model.KindTelemetry, name, spec))
		}
		if i == 2 {
			p.Telemetry = records[len(records)-1].Meta().Key
		}
	}
	in := input.New(mirror.Empty().Apply(1, records, nil).New, &pool.Pool{}, "")
	server = Of(in, p).String()
	p.Client = true
	return Of(in, p).String(), server
}

// The reports that follow from Telemetries and from the mesh's providers (the cases are those of istio:
// pilot/pkg/model/telemetry_test.go and telemetry_logging_test.go).
func TestReports(t *testing.T) {
	const self = "[istio.canonical_revision=latest istio.canonical_service=web istio.cluster_id=unknown istio.mesh_id=unknown istio.namespace=shop]"
	for name, c := range map[string]struct {
		mesh           string
		specs          []string
		client, server string // "=": as for the client
	}{
		"nothing":                         {"", nil, "", "="},
		"a default":                       {"defaultProviders: {accessLogging: [text]}", nil, "text", "="},
		"one that is always there":        {"", []string{"accessLogging: [{providers: [{name: envoy}]}]"}, "envoy", "="},
		"a service":                       {"", []string{"accessLogging: [{providers: [{name: calls}]}]"}, "calls>outbound|9000||logs.obs.svc.cluster.local", "="},
		"no service":                      {"", []string{"accessLogging: [{providers: [{name: lost}]}]"}, `root spec.accessLogging[0]: provider lost: no service has host "gone.obs.svc.cluster.local": nothing is sent to it`, "="},
		"no port":                         {"", []string{"accessLogging: [{providers: [{name: closed}]}]"}, `root spec.accessLogging[0]: provider closed: proxies of namespace shop have no cluster of a service with host "logs.obs.svc.cluster.local" and port 1: nothing is sent to it`, "="},
		"a host of two namespaces":        {"", []string{"accessLogging: [{providers: [{name: twice}]}]"}, `root spec.accessLogging[0]: provider twice: several namespaces have host "twice.example.com": write NAMESPACE/HOST; nothing is sent to it`, "="},
		"that of one of them":             {"", []string{"accessLogging: [{providers: [{name: one}]}]"}, "one>outbound|9000||twice.example.com", "="},
		"no logs":                         {"", []string{"accessLogging: [{providers: [{name: spans}]}]"}, "root spec.accessLogging[0]: provider spans: this version sends no access logs to this kind of provider", "="},
		"by direction":                    {"", []string{"accessLogging: [{providers: [{name: text}], match: {mode: CLIENT}}, {providers: [{name: envoy}], match: {mode: SERVER}}]"}, "text", "envoy"},
		"a filter":                        {"", []string{"accessLogging: [{providers: [{name: text}], filter: {expression: a}}]"}, "text if a", "="},
		"the nearest names providers":     {"", []string{"accessLogging: [{providers: [{name: text}]}]", "accessLogging: [{providers: [{name: envoy}]}]"}, "envoy", "="},
		"the nearest filters the default": {"defaultProviders: {accessLogging: [text]}", []string{"", "accessLogging: [{filter: {expression: a}}]"}, "text if a", "="},
		"a filter stays":                  {"defaultProviders: {accessLogging: [text]}", []string{"", "accessLogging: [{filter: {expression: a}}]", "accessLogging: [{disabled: false}]"}, "text if a", "="},
		"a filter above":                  {"", []string{"accessLogging: [{providers: [{name: text}]}]", "accessLogging: [{match: {mode: CLIENT}, filter: {expression: a}}]"}, "text if a", "text"},
		"the mesh's file, disabled":       {"accessLogFile: /dev/stdout", []string{"", "accessLogging: [{disabled: true}]"}, "no ", "="},
		"the mesh's file, for clients":    {"accessLogFile: /dev/stdout", []string{"", "accessLogging: [{match: {mode: SERVER}, disabled: true}]"}, "", "no "},
		"the mesh's file, enabled again":  {"accessLogFile: /dev/stdout", []string{"", "accessLogging: [{disabled: true}]", "accessLogging: [{}]"}, "", "="},
		"the mesh's file, filtered":       {"accessLogFile: /dev/stdout", []string{"accessLogging: [{filter: {expression: a}}]"}, " if a", "="},
		"the mesh's file, and a provider": {"accessLogFile: /dev/stdout", []string{"accessLogging: [{disabled: true}]", "accessLogging: [{providers: [{name: text}]}]"}, "text", "="},
		"nobody names a provider": {"", []string{"", "accessLogging: [{filter: {expression: a}}, {disabled: true}]"},
			"all spec.accessLogging[0]: names no provider, and neither a Telemetry above it does nor meshConfig.defaultProviders.accessLogging nor accessLogFile: it has no effect", "="},
		"disabled":                   {"defaultProviders: {accessLogging: [text]}", []string{"", "", "accessLogging: [{disabled: true}]"}, "no text", "="},
		"disabled and enabled again": {"", []string{"accessLogging: [{providers: [{name: text}], disabled: true}]", "accessLogging: [{disabled: false}]"}, "text", "="},
		"disabled for servers":       {"", []string{"accessLogging: [{providers: [{name: text}]}]", "accessLogging: [{providers: [{name: text}], match: {mode: SERVER}, disabled: true}]"}, "text", "no text"},

		"spans by default": {"defaultProviders: {tracing: [spans]}", nil, "spans to spans 1% " + self + " max 9", "="},
		"spans, sampled":   {"", []string{"tracing: [{providers: [{name: SPANS}], randomSamplingPercentage: 0}]"}, "spans to SPANS 0% " + self + " max 9", "="},
		"no provider": {"", []string{"tracing: [{randomSamplingPercentage: 5}]"},
			"root spec.tracing[0]: names no provider, and neither a Telemetry above it does nor meshConfig.defaultProviders.tracing nor defaultConfig.tracing: it has no effect", "="},
		"no provider, and the tracer of the bootstrap": {"defaultConfig: {tracing: {zipkin: {address: z:9411}}}", []string{"tracing: [{randomSamplingPercentage: 5}]"}, "spans to  5% " + self + " max 0", "="},
		"no provider, disabled":                        {"", []string{"tracing: [{disableSpanReporting: true}]"}, "", "="},
		"setting by setting":                           {"", []string{"tracing: [{providers: [{name: spans}], customTags: {a: {literal: {value: x}}}}]", "tracing: [{enableIstioTags: false}]", "tracing: [{randomSamplingPercentage: 5}]"}, "spans to spans 5% [a=x] max 9", "="},
		"none of servers":                              {"defaultProviders: {tracing: [spans]}", []string{"", "tracing: [{match: {mode: SERVER}, disableSpanReporting: true}]"}, "spans to spans 1% " + self + " max 9", ""},
		"a sampler decides":                            {"defaultConfig: {tracing: {sampling: 7, maxPathTagLength: 4}}", []string{"tracing: [{providers: [{name: sampled}], randomSamplingPercentage: 3}]"}, "spans to sampled 100% " + self + " max 4", "="},
		"no spans":                                     {"", []string{"tracing: [{providers: [{name: text}]}]"}, "root spec.tracing[0].providers[0]: provider text: this version sends no spans to this kind of provider", "="},
		"the tracer of the bootstrap":                  {"enableTracing: true\ndefaultConfig: {tracing: {sampling: 7, enableIstioTags: false, customTags: {a: {header: {name: x}}}}}", nil, "spans to  7% [a=x] max 0", "="},

		"metrics":               {"", []string{"metrics: [{providers: [{name: numbers}], overrides: [{match: {metric: REQUEST_COUNT, mode: CLIENT}, tagOverrides: {a: {value: b}, c: {operation: REMOVE}}}]}]"}, "metrics off=false [{requests_total false  } {requests_total false a b} {requests_total false c }]", "metrics off=false []"},
		"metrics, all disabled": {"defaultProviders: {metrics: [numbers]}", []string{"metrics: [{overrides: [{match: {metric: ALL_METRICS}, disabled: true}]}]"}, "metrics off=true []", "="},
		"metrics, enabled here": {"defaultProviders: {metrics: [numbers]}", []string{"metrics: [{overrides: [{match: {metric: ALL_METRICS}, disabled: true}]}]", "metrics: [{overrides: [{match: {customMetric: x}, disabled: true}]}]"}, "metrics off=false [{x true  }]", "="},
		"metrics of nobody":     {"", []string{"metrics: [{reportingInterval: 5s}]"}, "metrics off=true []; root spec.metrics[0]: names no provider, and neither a Telemetry above it does nor meshConfig.defaultProviders.metrics: it has no effect", "="},
		"no metrics":            {"", []string{"metrics: [{providers: [{name: spans}]}]"}, "metrics off=true []; root spec.metrics[0]: provider spans: this version sends no metrics to this kind of provider", "="},
	} {
		t.Run(name, func(t *testing.T) {
			if c.server == "=" {
				c.server = c.client
			}
			sends := strings.Contains(c.mesh+strings.Join(c.specs, ""), "tracing:")
			client, server := decide(t, c.mesh, sends, c.specs...)
			if client != c.client || server != c.server {
				t.Errorf("clients\n%s\nwant\n%s\nservers\n%s\nwant\n%s", client, c.client, server, c.server)
			}
		})
	}
}

// Proxies without a configured tracer sample 1 % of the requests and have no tags, unless enableTracing is false. A
// proxy with a tracer of its own also has Istio's tags.
func TestSampled(t *testing.T) {
	for name, c := range map[string]struct {
		off, sends bool
		logs       []string // of the mesh
		want       build.Tracing
	}{
		"no tracer":            {false, false, nil, oneInHundred},
		"no tracing":           {true, false, nil, build.Tracing{}},
		"a tracer, no tracing": {true, true, nil, build.Tracing{}},
		"logs, no tracer":      {false, false, []string{"envoy"}, oneInHundred},
		"a tracer of the proxy's": {false, true, nil, build.Tracing{On: true, RequestID: true, Sampling: 1,
			Tags: tags.List(slices.Concat((&decision{Proxy: Proxy{Visibility: host.Visibility{Namespace: "shop"}}}).selfTags(), build.DryRunTags)...)}},
	} {
		t.Run(name, func(t *testing.T) {
			mesh := rec(t, model.KindMesh, "/mesh", "{}").(*model.Mesh)
			mesh.Spec.EnableTracing, mesh.Spec.DefaultProviders = !c.off, &meshv1.MeshConfig_DefaultProviders{AccessLogging: c.logs}
			in := input.New(mirror.Empty().Apply(1, []model.Record{mesh}, nil).New, &pool.Pool{}, "")
			got := Of(in, Proxy{Visibility: host.Visibility{Namespace: "shop", Imports: []*host.Imports{host.ImportAll()}}, Caps: xds.StockCaps, Self: view.Self{Sends: c.sends}}).Spec.Tracing
			names := func(l intern.List[build.Tag]) (out []string) {
				for _, tag := range l.All() {
					out = append(out, tag.Name+"="+tag.Value)
				}
				slices.Sort(out)
				return out
			}
			if !slices.Equal(names(got.Tags), names(c.want.Tags)) {
				t.Errorf("tags %v, want %v", names(got.Tags), names(c.want.Tags))
			}
			if got.Tags, c.want.Tags = (intern.List[build.Tag]{}), (intern.List[build.Tag]{}); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// Of several Telemetries of a namespace without a selector the oldest applies. One that names only extensions that a
// proxy lacks is a problem.
func TestOldestCounts(t *testing.T) {
	records := []model.Record{rec(t, model.KindMesh, "/mesh", providers), rec(t, model.KindTelemetry, "shop/a@5", "accessLogging: [{providers: [{name: text}]}]"),
		rec(t, model.KindTelemetry, "shop/b@3", "accessLogging: [{providers: [{name: envoy}], filter: {expression: x}}]"),
		rec(t, model.KindTelemetry, "shop/c@1", "{selector: {matchLabels: {a: b}}, accessLogging: [{providers: [{name: text}]}]}")}
	in := input.New(mirror.Empty().Apply(1, records, nil).New, &pool.Pool{}, "")
	p := Proxy{Visibility: host.Visibility{Namespace: "shop", Imports: []*host.Imports{host.ImportAll()}}, Caps: xds.StockCaps}
	if got := Of(in, p).String(); got != "envoy if x" {
		t.Errorf("got %s", got)
	}
	p.Caps &^= xds.CapCELFilter
	if got := Of(in, p).String(); got != "b spec.accessLogging[0]: provider envoy: some proxies of namespace shop do not have [envoy.access_loggers.extension_filters.cel]: they do not log to it" {
		t.Errorf("got %s", got)
	}
	if hosts := Of(in, Proxy{Visibility: host.Visibility{Namespace: "other"}, Caps: xds.StockCaps}).Hosts; !slices.Equal(hosts, nil) {
		t.Errorf("hosts %v were looked for", hosts)
	}
}

// TestClusterIsThere: a provider counts only if its cluster exists independently of VirtualServices.
func TestClusterIsThere(t *testing.T) {
	mesh := rec(t, model.KindMesh, "/mesh", providers+"defaultProviders: {accessLogging: [one]}")
	service := func(name string, created, port int, more string) model.Record {
		return rec(t, model.KindServiceEntry, fmt.Sprintf("%s@%d", name, created), fmt.Sprintf("{hosts: [twice.example.com], ports: [{number: %d, name: grpc}], exportTo: %s}", port, more))
	}
	all, hosts := []*host.Imports{host.ImportAll()}, []*host.Imports{host.ImportHosts([]string{"obs/*"}, "shop", 0)}
	for name, c := range map[string]struct {
		records []model.Record
		imports []*host.Imports
		there   bool
	}{
		"alone":                       {[]model.Record{service("obs/a", 1, 9000, "['*']")}, all, true},
		"another port":                {[]model.Record{service("obs/a", 1, 9001, "['*']")}, all, false},
		"not exported":                {[]model.Record{service("obs/a", 1, 9000, "[obs]")}, all, false},
		"one service of two":          {[]model.Record{service("obs/a", 1, 9000, "['*']"), service("obs/b", 2, 9001, "['*']")}, all, true},
		"the proxy's own has no port": {[]model.Record{service("obs/a", 1, 9000, "['*']"), service("shop/b", 2, 9001, "['*']")}, all, false},
		"it has, where a VirtualService sends there":  {[]model.Record{service("obs/a", 1, 9000, "['*']"), service("shop/b", 2, 9001, "['*']")}, hosts, false},
		"not imported, and the same port":             {[]model.Record{service("obs/a", 1, 9000, "['*']"), service("shop/b", 2, 9000, "['*']")}, hosts, true},
		"not imported, and not exported to the proxy": {[]model.Record{service("obs/a", 1, 9000, "['*']"), service("other/b", 0, 9001, "[other]")}, hosts, true},
	} {
		t.Run(name, func(t *testing.T) {
			in := input.New(mirror.Empty().Apply(1, append(c.records, mesh), nil).New, &pool.Pool{}, "")
			got := Of(in, Proxy{Visibility: host.Visibility{Namespace: "shop", Imports: c.imports}, Caps: xds.StockCaps})
			if there := got.Spec.Logs.Len() > 0; there != c.there {
				t.Errorf("logs are sent: %v; problems: %v", there, got.Problems)
			}
		})
	}
}
