package normal

import (
	"fmt"
	"strings"
	"testing"

	meshv1 "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/model"
)

func service(spec string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {" + spec + "}"
}

// Headless Services alone have merged listeners and local names, by the control plane's settings or, the former, by
// their own annotation.
func TestHeadlessService(t *testing.T) {
	const annotation = "navarch.io/headless-listeners"
	for _, c := range []struct {
		options       Options
		spec, stated  string
		merged, local bool
		problems      []string
	}{
		{Options{}, "clusterIP: None", "", false, false, nil},
		{Options{}, "clusterIP: None", "merged", true, false, nil},
		{Options{MergedListeners: true, LocalNames: true}, "clusterIP: None", "", true, true, nil},
		{Options{MergedListeners: true, LocalNames: true}, "clusterIP: 10.0.0.1", "", false, false, nil},
		{Options{}, "clusterIP: None", "Merged", false, false, []string{"warning metadata.annotations[" + annotation + "]: \"Merged\": want merged"}},
		{Options{}, "clusterIP: 10.0.0.1", "merged", false, false, []string{"warning metadata.annotations[" + annotation + "]: the Service is not headless"}},
	} {
		text := service(c.spec + ", ports: [{name: tcp, port: 90}]")
		if c.stated != "" {
			text = strings.Replace(text, "namespace: shop}", "namespace: shop, annotations: {"+annotation+": "+c.stated+"}}", 1)
		}
		r := New(c.options).Object(read(t, text), &fake{})
		wantProblems(t, r.Problems, c.problems...)
		if spec := r.Records[0].(*model.Service).Spec; spec.GetMergedListeners() != c.merged || spec.GetLocalNames() != c.local {
			t.Errorf("%+v, %s, %q: merged %v, local %v", c.options, c.spec, c.stated, spec.GetMergedListeners(), spec.GetLocalNames())
		}
	}
}

func TestService(t *testing.T) {
	key := model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}
	for name, c := range map[string]struct{ in, want string }{
		"cluster IP": {service("clusterIP: 10.0.0.1, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}, {name: admin, port: 81, targetPort: adm}]"),
			`{hosts: [web.shop.svc.cluster.local], addresses: [10.0.0.1], selector: {app: web}, exportTo: ["*"],
			  ports: [{number: 80, name: http, protocol: PROTOCOL_HTTP, targetNumber: 8080}, {number: 81, name: admin, targetName: adm}]}`},
		"headless, two families": {service("clusterIP: None, clusterIPs: [None], publishNotReadyAddresses: true, ports: [{name: tcp, port: 90}]"),
			`{hosts: [web.shop.svc.cluster.local], headless: true, publishNotReady: true, exportTo: ["*"], ports: [{number: 90, name: tcp, protocol: PROTOCOL_TCP, targetNumber: 90}]}`},
		"dual stack": {service("clusterIPs: [10.0.0.1, 'fd00::1'], ports: [{port: 90}]"),
			`{hosts: [web.shop.svc.cluster.local], addresses: [10.0.0.1, "fd00::1"], exportTo: ["*"], ports: [{number: 90, targetNumber: 90}]}`},
		"external name": {service("type: ExternalName, externalName: DB.example.com., ports: [{name: tcp-db, port: 5432, targetPort: x}]"),
			`{hosts: [web.shop.svc.cluster.local], resolution: RESOLUTION_DNS, external: true, alias_for: db.example.com, exportTo: ["*"], ports: [{number: 5432, name: tcp-db, protocol: PROTOCOL_TCP, targetNumber: 5432}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := testNormal.Object(read(t, c.in), &fake{})
			wantProblems(t, r.Problems)
			wantBody(t, r, key, c.want)
			if name == "external name" {
				wantBody(t, r, model.Key{Kind: model.KindEndpoints, Namespace: "shop", Name: "externalname:web"},
					`{hosts: [web.shop.svc.cluster.local], ports: [{name: tcp-db, number: 5432, service: 5432}], endpoints: [{address: db.example.com, namespace: shop}]}`)
			}
		})
	}
}

func TestServiceProblems(t *testing.T) {
	for in, want := range map[string][]string{
		service("clusterIP: 10.0.0.1, ports: [{port: 80, name: a}, {port: 80, name: a}]"): {`spec.ports[1].name: "a" is used twice`, "spec.ports[1].port: port 80 is used twice"},
		service("clusterIP: 10.0.0.1, ports: [{port: 0}]"):                                {"spec.ports[0].port: port 0 is not in 1-65535"},
		service("clusterIP: 10.0.0.300, ports: [{port: 80}]"):                             {`spec.clusterIPs[0]: "10.0.0.300" is no IP address`},
		service("clusterIP: 10.0.0.1, ports: [{port: eighty}]"):                           {"spec.ports.port: must be of type int32, not string"},
		service("clusterIP: 10.0.0.1, ports: [{port: 80, protocol: SCTP}]"):               {"warning spec.ports[0].protocol: SCTP"},
		service("clusterIP: 10.0.0.1, prots: []"):                                         {"warning spec.prots: unknown field"},
		service("clusterIP: 10.0.0.1, ports: [{port: 80}], sessionAffinity: ClientIP"):    {"warning spec.sessionAffinity: ClientIP"},
		service("clusterIP: 10.0.0.1, ports: [{port: 80}], sessionAffinity: None"):        nil,
		strings.Replace(service("clusterIP: 10.0.0.1, ports: [{port: 80}]"), "metadata: {", "metadata: {labels: {istio.io/persistent-session: cookie, istio.io/persistent-session-header: x-session}, ", 1): {
			"warning metadata.labels[istio.io/persistent-session]: is not acted on", "warning metadata.labels[istio.io/persistent-session-header]: is not acted on"},
		service("ports: [{port: 80}]"):                     {"warning spec.clusterIP: no address"},
		service("type: ExternalName, externalName: 'a b'"): {`spec.externalName: "a b" is no valid host name`},
	} {
		wantProblems(t, testNormal.Object(read(t, in), &fake{}).Problems, want...)
	}
}

// https://istio.io/latest/docs/ops/configuration/traffic-management/protocol-selection/
func TestProtocolSelection(t *testing.T) {
	for _, c := range []struct {
		name, app, transport string
		port                 int32
		want                 model.Protocol
	}{
		{name: "http", want: model.Protocol_PROTOCOL_HTTP}, {name: "HTTP-web", want: model.Protocol_PROTOCOL_HTTP},
		{name: "http2-x", want: model.Protocol_PROTOCOL_HTTP2}, {name: "grpc", want: model.Protocol_PROTOCOL_GRPC},
		{name: "grpc-web", want: model.Protocol_PROTOCOL_GRPC_WEB}, {name: "grpc-web-x", want: model.Protocol_PROTOCOL_GRPC_WEB},
		{name: "https-a", want: model.Protocol_PROTOCOL_HTTPS}, {name: "tls", want: model.Protocol_PROTOCOL_TLS},
		{name: "tcp-a", want: model.Protocol_PROTOCOL_TCP}, {name: "mongo", want: model.Protocol_PROTOCOL_MONGO},
		{name: "redis-a", want: model.Protocol_PROTOCOL_TCP}, {name: "mysql", want: model.Protocol_PROTOCOL_TCP},
		{name: "web", want: model.Protocol_PROTOCOL_AUTO}, {name: "", want: model.Protocol_PROTOCOL_AUTO},
		{name: "httpx", want: model.Protocol_PROTOCOL_AUTO}, {name: "db", port: 3306, want: model.Protocol_PROTOCOL_TCP},
		{name: "mail", port: 25, want: model.Protocol_PROTOCOL_TCP}, {name: "http", port: 3306, want: model.Protocol_PROTOCOL_HTTP},
		{name: "tcp", app: "http", want: model.Protocol_PROTOCOL_HTTP}, {name: "tcp", app: "kubernetes.io/h2c", want: model.Protocol_PROTOCOL_HTTP2},
		{name: "tcp", app: "kubernetes.io/ws", want: model.Protocol_PROTOCOL_HTTP}, {name: "tcp", app: "kubernetes.io/wss", want: model.Protocol_PROTOCOL_HTTPS},
		{name: "http", app: "example.com/own", want: model.Protocol_PROTOCOL_AUTO}, {name: "http", transport: "UDP", want: model.Protocol_PROTOCOL_UDP},
	} {
		port := corev1.ServicePort{Name: c.name, Port: 80, Protocol: corev1.Protocol(c.transport)}
		if c.port != 0 {
			port.Port = c.port
		}
		if c.app != "" {
			port.AppProtocol = &c.app
		}
		if got := protocolOf(port); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestExportTo(t *testing.T) {
	annotated := func(v string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, annotations: {networking.istio.io/exportTo: '" + v + "'}}\nspec: {clusterIP: None}"
	}
	only := &meshv1.MeshConfig{DefaultServiceExportTo: []string{"."}}
	for _, c := range []struct {
		in   string
		mesh *meshv1.MeshConfig
		want []string
	}{
		{annotated(""), nil, []string{"*"}}, {annotated("."), nil, []string{"shop"}}, {annotated("b, .,a,b"), nil, []string{"a", "b", "shop"}},
		{annotated("a,*"), nil, []string{"*"}}, {annotated("~"), nil, nil}, {annotated(""), only, []string{"shop"}}, {annotated("*"), only, []string{"*"}},
	} {
		r := testNormal.Object(read(t, c.in), &fake{mesh: c.mesh})
		wantProblems(t, r.Problems)
		if got := r.Records[0].(*model.Service).Spec.ExportTo; !equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.in, got, c.want)
		}
	}
	wantProblems(t, testNormal.Object(read(t, annotated("a b")), &fake{}).Problems, `metadata.annotations[networking.istio.io/exportTo]: "a b" is no namespace`)
	if !testNormal.Object(read(t, annotated("")), &fake{}).UsesMesh || testNormal.Object(read(t, annotated("*")), &fake{}).UsesMesh {
		t.Error("UsesMesh is set exactly where the default applies")
	}
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

const slice = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: admin, port: 8081}, {name: all}]
endpoints:
- {addresses: [10.1.0.2], targetRef: {kind: Pod, name: web-2}, hostname: web-2}
- {addresses: [10.1.0.1], targetRef: {kind: Pod, name: web-1}, nodeName: other}
- {addresses: [10.1.0.4], conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [10.1.0.3], conditions: {ready: false, serving: false}, nodeName: n1}
`

func TestEndpointSlice(t *testing.T) {
	ctx := &fake{
		pods: map[string]*Pod{
			"shop/web-1": {Labels: map[string]string{"app": "web", "security.istio.io/tlsMode": "istio"}, Node: "n1", ServiceAccount: "web", Workload: "web"},
			"shop/web-2": {Labels: map[string]string{"istio-locality": "r.z.s", model.NetworkLabel: "far"}, Node: "n1", ServiceAccount: "default", Workload: "web-2", NotReady: true},
		},
		nodes:  map[string]*Node{"n1": {Locality: "r1/z1"}},
		spaces: map[string]*Namespace{"istio-system": {Network: "near"}},
	}
	r := testNormal.Object(read(t, slice), ctx)
	wantProblems(t, r.Problems)
	wantBody(t, r, model.Key{Kind: model.KindEndpoints, Namespace: "shop", Name: "web-1"}, `
hosts: [web.shop.svc.cluster.local]
ports: [{name: admin, number: 8081}, {name: http, number: 8080}]
endpoints:
- {address: 10.1.0.1, labels: {app: web, security.istio.io/tlsMode: istio}, namespace: shop, serviceAccount: web, workload: web, network: near, cluster: Kubernetes, locality: r1/z1, node: n1, mtls: true}
- {address: 10.1.0.2, labels: {istio-locality: r.z.s, topology.istio.io/network: far}, health: HEALTH_NOT_READY, namespace: shop, serviceAccount: default, workload: web-2, network: far, cluster: Kubernetes, locality: r/z/s, node: n1, hostname: web-2}
- {address: 10.1.0.3, health: HEALTH_NOT_READY, namespace: shop, network: near, cluster: Kubernetes, locality: r1/z1, node: n1}
- {address: 10.1.0.4, health: HEALTH_DRAINING, namespace: shop, network: near, cluster: Kubernetes}
`)
	refs := map[string]bool{}
	for _, id := range r.Refs {
		refs[id.String()] = true
	}
	for _, want := range []string{"Pod shop/web-1", "Pod shop/web-2", "Node n1", "Namespace istio-system"} {
		if !refs[want] {
			t.Errorf("ref to %s is missing: %v", want, refs)
		}
	}
	r = testNormal.Object(read(t, slice), &fake{})
	wantProblems(t, r.Problems, "warning endpoints[0].targetRef: Pod shop/web-2 does not exist", "warning endpoints[1].targetRef: Pod shop/web-1 does not exist")
}

// The network of an endpoint, as istiod decides it: its Pod's label, the label of its cluster's system namespace, the
// network that has its whole cluster, the one that has its address
// (pilot/pkg/serviceregistry/kube/controller/network.go, Network and networkFromMeshNetworks).
func TestNetworks(t *testing.T) {
	const cidr = "networks: {b: {endpoints: [{fromCidr: 10.1.0.2/32}]}"
	pods := map[string]*Pod{"shop/web-1": {Labels: map[string]string{"topology.istio.io/network": "of-pod"}}}
	for name, c := range map[string]struct {
		ctx  fake
		want [2]string // of 10.1.0.1, which is Pod shop/web-1, and of 10.1.0.2
	}{
		"nothing":              {fake{}, [2]string{"", ""}},
		"its address":          {fake{networks: networksOf(t, cidr+"}")}, [2]string{"", "b"}},
		"its cluster":          {fake{networks: networksOf(t, cidr+", a: {endpoints: [{fromRegistry: Kubernetes}]}}")}, [2]string{"a", "a"}},
		"another cluster":      {fake{networks: networksOf(t, cidr+", a: {endpoints: [{fromRegistry: west}]}}")}, [2]string{"", "b"}},
		"its system namespace": {fake{networks: networksOf(t, cidr+", a: {endpoints: [{fromRegistry: Kubernetes}]}}"), spaces: map[string]*Namespace{"istio-system": {Network: "of-cluster"}}}, [2]string{"of-cluster", "of-cluster"}},
		"its Pod":              {fake{pods: pods, spaces: map[string]*Namespace{"istio-system": {Network: "of-cluster"}}}, [2]string{"of-pod", "of-cluster"}},
	} {
		r := testNormal.Object(read(t, slice), &c.ctx)
		var got [2]string
		for _, e := range r.Records[0].(*model.Endpoints).Spec.Endpoints {
			if i := map[string]int{"10.1.0.1": 1, "10.1.0.2": 2}[e.Address]; i > 0 {
				got[i-1] = e.Network
			}
		}
		if got != c.want {
			t.Errorf("%s: networks %q, want %q", name, got, c.want)
		}
	}
}

func TestPodWorkload(t *testing.T) {
	for owner, want := range map[string]string{
		"{kind: ReplicaSet, name: web-5d4f, controller: true}": "web",
		"{kind: ReplicaSet, name: other-77, controller: true}": "other-77",
		"{kind: StatefulSet, name: db, controller: true}":      "db",
		"{kind: Job, name: backup-28000000, controller: true}": "backup",
		"{kind: Thing, name: aside, controller: false}":        "web-5d4f-x",
	} {
		pod, problems := ParsePod(read(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web-5d4f-x, namespace: shop, labels: {pod-template-hash: 5d4f}, ownerReferences: ["+owner+"]}"))
		rollout, _ := ParsePod(read(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web-5d4f-x, namespace: shop, labels: {rollouts-pod-template-hash: 5d4f}, ownerReferences: ["+owner+"]}"))
		if len(problems) > 0 || pod.Workload != want || rollout.Workload != want || pod.ServiceAccount != "default" {
			t.Errorf("%s: %+v %v, want %s", owner, pod, problems, want)
		}
	}
}

// A slice that would be too large for one record is several, and an endpoint that goes changes one of them.
func TestLargeSliceIsSplit(t *testing.T) {
	text := slice[:strings.Index(slice, "endpoints:")] + "endpoints:\n"
	var lines []string
	for i := range 1000 {
		lines = append(lines, fmt.Sprintf("- {addresses: [10.9.%d.%d], hostname: %s}\n", i/250, i%250, strings.Repeat("h", 150)))
	}
	whole := testNormal.Object(read(t, text+strings.Join(lines, "")), &fake{})
	less := testNormal.Object(read(t, text+strings.Join(lines[1:], "")), &fake{})
	if len(whole.Records) < 2 || len(less.Records) != len(whole.Records) {
		t.Fatalf("%d and %d records", len(whole.Records), len(less.Records))
	}
	total, differ := 0, 0
	for i, r := range whole.Records {
		total += len(r.(*model.Endpoints).Spec.Endpoints)
		if raw, err := model.Encode(r); err != nil || len(raw) > maxEndpoints {
			t.Errorf("%v has %d bytes, error %v", r.Meta().Key, len(raw), err)
		}
		if r.Meta().Hash != less.Records[i].Meta().Hash {
			differ++
		}
		if SourceObject(r.Meta().Key).Name != "web-1" {
			t.Errorf("%v belongs to %v", r.Meta().Key, SourceObject(r.Meta().Key))
		}
	}
	if total != 1000 || differ != 1 {
		t.Errorf("%d endpoints in all, %d records differ", total, differ)
	}
}
