package normal

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// networksOf reads meshNetworks.
func networksOf(t *testing.T, text string) *meshv1.MeshNetworks {
	t.Helper()
	got := testNormal.ParseMesh(read(t, meshMap("{}", text)))
	if got.Networks == nil {
		t.Fatal(got.Problems)
	}
	return got.Networks
}

// gatewaysIn prints the gateways of records as network/cluster/address:port.
func gatewaysIn(records []model.Record) string {
	var out []string
	for _, r := range records {
		if g, ok := r.(*model.NetworkGateways); ok {
			for _, one := range g.Spec.Gateways {
				out = append(out, one.Network+"/"+one.Cluster+"/"+one.Address+":"+strconv.Itoa(int(one.Port)))
			}
		}
	}
	return strings.Join(out, " ")
}

// Which Services are gateways of networks, and at which addresses and ports.
func TestNetworkGateways(t *testing.T) {
	const (
		labels  = "labels: {topology.istio.io/network: net-b}"
		ingress = "status: {loadBalancer: {ingress: [{ip: 192.0.2.2}, {ip: 192.0.2.1}, {ip: 192.0.2.1}]}}"
		ports   = "clusterIP: 10.96.0.9, ports: [{name: tls, port: 15443, nodePort: 31443}]"
	)
	for name, c := range map[string]struct {
		meta, spec, status string
		networks           string
		want               string
		problems           []string
	}{
		"a label":           {labels, "type: LoadBalancer, " + ports, ingress, "", "net-b/Kubernetes/192.0.2.1:15443 net-b/Kubernetes/192.0.2.2:15443", nil},
		"no label":          {"labels: {}", "type: LoadBalancer, " + ports, ingress, "", "", nil},
		"a port of its own": {"labels: {topology.istio.io/network: net-b, networking.istio.io/gatewayPort: '443'}", "externalIPs: [192.0.2.9], " + ports, "", "", "net-b/Kubernetes/192.0.2.9:443", nil},
		"a port that is none": {"labels: {topology.istio.io/network: net-b, networking.istio.io/gatewayPort: x}", "externalIPs: [192.0.2.9], " + ports, "", "", "net-b/Kubernetes/192.0.2.9:15443",
			[]string{`warning metadata.labels[networking.istio.io/gatewayPort]: "x" is no port: it is 15443`}},
		"external IPs and ingress": {labels, "type: LoadBalancer, externalIPs: ['2001:db8::1'], " + ports, "status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}", "", "net-b/Kubernetes/192.0.2.1:15443 net-b/Kubernetes/2001:db8::1:15443", nil},
		"a host name": {labels, "type: LoadBalancer, " + ports, "status: {loadBalancer: {ingress: [{hostname: lb.example.com}, {ip: 192.0.2.1}]}}", "", "net-b/Kubernetes/192.0.2.1:15443",
			[]string{"warning status.loadBalancer.ingress[0]: |lb.example.com|not resolved"}},
		"no address":     {labels, ports, "", "", "", []string{"warning status.loadBalancer: the Service has no address outside"}},
		"node ports":     {labels + ", annotations: {traffic.istio.io/nodeSelector: '{}'}", "type: NodePort, externalIPs: [192.0.2.9], " + ports, "", "", "net-b/Kubernetes/192.0.2.21:31443 net-b/Kubernetes/192.0.2.22:31443", nil},
		"selected nodes": {labels + `, annotations: {traffic.istio.io/nodeSelector: '{"edge": "yes"}'}`, "type: NodePort, " + ports, "", "", "net-b/Kubernetes/192.0.2.21:31443", nil},
		"no such node": {labels + `, annotations: {traffic.istio.io/nodeSelector: '{"edge": "no"}'}`, "type: NodePort, " + ports, "", "", "",
			[]string{"warning metadata.annotations[traffic.istio.io/nodeSelector]: no Node"}},
		"no selector": {labels + ", annotations: {traffic.istio.io/nodeSelector: edge}", "type: NodePort, " + ports, "", "", "",
			[]string{"warning metadata.annotations[traffic.istio.io/nodeSelector]: want a JSON object"}},
		"a selector of another type": {labels + ", annotations: {traffic.istio.io/nodeSelector: '{}'}", "externalIPs: [192.0.2.9], " + ports, "", "", "net-b/Kubernetes/192.0.2.9:15443", nil},
		"meshNetworks": {"labels: {}", "externalIPs: [192.0.2.9], " + ports, "",
			"networks: {net-c: {endpoints: [{fromRegistry: Kubernetes}], gateways: [{registryServiceName: gw.istio-system.svc.cluster.local, port: 443}]}}", "net-c/Kubernetes/192.0.2.9:443", nil},
		"meshNetworks of another cluster": {"labels: {}", "externalIPs: [192.0.2.9], " + ports, "",
			"networks: {net-c: {endpoints: [{fromRegistry: west}], gateways: [{registryServiceName: gw.istio-system.svc.cluster.local, port: 443}]}}", "", nil},
		"the label goes before meshNetworks": {labels, "externalIPs: [192.0.2.9], " + ports, "",
			"networks: {net-c: {endpoints: [{fromRegistry: Kubernetes}], gateways: [{registryServiceName: gw.istio-system.svc.cluster.local, port: 443}]}}", "net-b/Kubernetes/192.0.2.9:15443", nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := &fake{nodes: map[string]*Node{"a": {External: "192.0.2.21", Labels: map[string]string{"edge": "yes", "zone": "1"}}, "b": {External: "192.0.2.22"}, "inside": {Locality: "r"}}}
			if c.networks != "" {
				ctx.networks = networksOf(t, c.networks)
			}
			r := testNormal.Object(read(t, "apiVersion: v1\nkind: Service\nmetadata: {name: gw, namespace: istio-system, "+c.meta+"}\nspec: {"+c.spec+"}\n"+c.status), ctx)
			wantProblems(t, r.Problems, c.problems...)
			if got := gatewaysIn(r.Records); got != c.want {
				t.Errorf("gateways %q, want %q", got, c.want)
			}
			for _, record := range r.Records {
				if id := SourceObject(record.Meta().Key); id.Kind != "Service" || id.Name != "gw" {
					t.Errorf("%v belongs to %v", record.Meta().Key, id)
				}
			}
		})
	}
}

// meshNetworks has gateways with addresses of its own, and its invalid gateways are reported.
func TestMeshNetworksGateways(t *testing.T) {
	for text, want := range map[string]struct {
		gateways string
		problems []string
	}{
		"networks: {b: {gateways: [{address: 192.0.2.2, port: 15443}, {address: 192.0.2.1, port: 443}]}, a: {gateways: [{address: 192.0.2.3, port: 1}]}}": {"a//192.0.2.3:1 b//192.0.2.1:443 b//192.0.2.2:15443", nil},
		"networks: {b: {gateways: [{address: gw.example.com, port: 15443}]}}":                                                                             {"", []string{"warning data.meshNetworks.networks[b].gateways[0].address: |not resolved"}},
		"networks: {b: {gateways: [{registryServiceName: a.b, port: 15443}]}}":                                                                            {"", []string{"warning data.meshNetworks.networks[b].gateways[0].registryServiceName: |fromRegistry"}},
		"networks: {b: {gateways: [{address: 192.0.2.1, port: 1, locality: r}]}}":                                                                         {"b//192.0.2.1:1", []string{"warning data.meshNetworks.networks[b].gateways[0].locality: is not read"}},
	} {
		got := testNormal.ParseMesh(read(t, meshMap("{}", text)))
		wantProblems(t, got.Problems, want.problems...)
		record, _, err := testNormal.MeshGateways(got.Networks, nil)
		var records []model.Record
		if record != nil {
			records = append(records, record)
		}
		if have := gatewaysIn(records); err != nil || have != want.gateways {
			t.Errorf("%s: %q, %v", text, have, err)
		}
	}
	for text, want := range map[string]string{
		"networks: {b: {gateways: [{address: 192.0.2.1}]}}": "data.meshNetworks.networks[b].gateways[0].port: port 0",
		"networks: {b: {gateways: [{port: 1}]}}":            "data.meshNetworks.networks[b].gateways[0]: want address",
	} {
		got := testNormal.ParseMesh(read(t, meshMap("{}", text)))
		if wantProblems(t, got.Problems, want); got.Networks != nil {
			t.Errorf("%s: usable", text)
		}
	}
}

// Gateways with host names have the resolved addresses, and objects that refer to them are normalised again when these
// change.
func TestNamesOfGateways(t *testing.T) {
	with := New(Options{ResolveGateways: true})
	ctx := &fake{resolved: map[object.ID][]string{ResolvedID("lb.example.com"): {"192.0.2.7", "2001:db8::7"}}}
	svc := func(hostname string) *object.Object {
		return read(t, "apiVersion: v1\nkind: Service\nmetadata: {name: gw, namespace: istio-system, labels: {topology.istio.io/network: net-b}}\n"+
			"spec: {type: LoadBalancer, clusterIP: 10.96.0.9, ports: [{name: tls, port: 15443}]}\nstatus: {loadBalancer: {ingress: [{hostname: '"+hostname+"'}, {ip: 192.0.2.1}]}}")
	}
	r := with.Object(svc("LB.example.com."), ctx)
	if got := gatewaysIn(r.Records); got != "net-b/Kubernetes/192.0.2.1:15443 net-b/Kubernetes/192.0.2.7:15443 net-b/Kubernetes/2001:db8::7:15443" || len(r.Problems) > 0 || !slices.Contains(r.Refs, ResolvedID("lb.example.com")) {
		t.Errorf("%s, %v, refs %v", got, r.Problems, r.Refs)
	}
	r = with.Object(svc("new.example.com"), ctx)
	wantProblems(t, r.Problems, "warning status.loadBalancer.ingress[0]: |new.example.com|not resolved")
	if got := gatewaysIn(r.Records); got != "net-b/Kubernetes/192.0.2.1:15443" || !slices.Contains(r.Refs, ResolvedID("new.example.com")) {
		t.Errorf("%s, refs %v", got, r.Refs)
	}
	r = with.Object(svc("no name"), ctx)
	wantProblems(t, r.Problems, "warning status.loadBalancer.ingress[0]: |no name|not used")
	if slices.ContainsFunc(r.Refs, func(id object.ID) bool { return id.Kind == "ResolvedName" }) {
		t.Errorf("refs %v", r.Refs)
	}
	mesh := with.ParseMesh(read(t, meshMap("{}", "networks: {b: {gateways: [{address: lb.example.com, port: 15443}, {address: 192.0.2.1, port: 443}, {address: new.example.com, port: 1}]}}")))
	wantProblems(t, mesh.Problems)
	record, refs, err := with.MeshGateways(mesh.Networks, ctx.Resolved)
	if err != nil || len(refs) != 2 {
		t.Fatalf("%v, refs %v", err, refs)
	}
	if got := gatewaysIn([]model.Record{record}); got != "b//192.0.2.1:443 b//192.0.2.7:15443 b//2001:db8::7:15443" {
		t.Errorf("meshNetworks: %s", got)
	}
	if made, err := NewResolved("x", []string{"192.0.2.1"}); err != nil || made.ID != ResolvedID("x") || len(ParseResolved(made)) != 1 {
		t.Errorf("%v, %v", made, err)
	}
}
