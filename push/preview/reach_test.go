package preview

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	extensionsv1 "istio.io/api/extensions/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"
	typev1 "istio.io/api/type/v1beta1"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// NP501: an object of the root namespace applies to the whole mesh. Near misses: it selects workloads, or is in another
// namespace, or is a route.
func TestMeshWide(t *testing.T) {
	const root = "istio-system"
	labels := map[string]string{"app": "a"}
	selector, workloads := &typev1.WorkloadSelector{MatchLabels: labels}, &networkingv1.WorkloadSelector{Labels: labels}
	targets := []*typev1.PolicyTargetReference{{Group: "gateway.networking.k8s.io", Kind: "Gateway", Name: "edge"}}
	for name, c := range map[string]struct {
		object model.Record
		want   string
	}{
		"a policy": {record(t, model.KindPeerAuthentication, root, "p", &model.PolicySpec{MeshWide: true}), "PeerAuthentication istio-system/p"},
		"a policy with a selector": {record(t, model.KindAuthorizationPolicy, root, "p",
			&model.PolicySpec{MeshWide: true, Selector: labels}), ""},
		"a policy for its namespace":     {record(t, model.KindPeerAuthentication, root, "p", &model.PolicySpec{Selector: labels}), ""},
		"a policy of another namespace":  {record(t, model.KindPeerAuthentication, "shop", "p", &model.PolicySpec{}), ""},
		"a Sidecar":                      {record(t, model.KindSidecar, root, "s", &networkingv1.Sidecar{}), "Sidecar istio-system/s"},
		"a Sidecar of another namespace": {record(t, model.KindSidecar, "shop", "s", &networkingv1.Sidecar{}), ""},
		"a Sidecar with a selector":      {record(t, model.KindSidecar, root, "s", &networkingv1.Sidecar{WorkloadSelector: workloads}), ""},
		"an EnvoyFilter":                 {record(t, model.KindEnvoyFilter, root, "f", &networkingv1.EnvoyFilter{}), "EnvoyFilter istio-system/f"},
		"an EnvoyFilter with targets":    {record(t, model.KindEnvoyFilter, root, "f", &networkingv1.EnvoyFilter{TargetRefs: targets}), ""},
		"an EnvoyFilter with a selector": {record(t, model.KindEnvoyFilter, root, "f",
			&networkingv1.EnvoyFilter{WorkloadSelector: workloads}), ""},
		"a Telemetry":                 {record(t, model.KindTelemetry, root, "t", &telemetryv1.Telemetry{}), "Telemetry istio-system/t"},
		"a Telemetry with a selector": {record(t, model.KindTelemetry, root, "t", &telemetryv1.Telemetry{Selector: selector}), ""},
		"an extension":                {record(t, model.KindTrafficExtension, root, "e", &extensionsv1.TrafficExtension{}), "TrafficExtension istio-system/e"},
		"an extension with a selector": {record(t, model.KindTrafficExtension, root, "e",
			&extensionsv1.TrafficExtension{Selector: selector}), ""},
		"a VirtualService": {record(t, model.KindVirtualService, root, "v", &networkingv1.VirtualService{Hosts: []string{web}}), ""},
	} {
		if got := reachOf(t, "NP501", []string{"a.shop"}, c.object); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// NP503: Sidecars that select by a label split one view into three. Near miss: into two.
func TestViewsMultiply(t *testing.T) {
	sidecar := func(name string) model.Record {
		return record(t, model.KindSidecar, "shop", name, &networkingv1.Sidecar{
			WorkloadSelector: &networkingv1.WorkloadSelector{Labels: map[string]string{"app": name}},
			Egress:           []*networkingv1.IstioEgressListener{{Hosts: []string{"./" + web}}}})
	}
	proxies := []string{"a.shop", "b.shop", "c.shop"}
	want := "medium reach: views 1 -> 3 [Sidecar shop/a Sidecar shop/b]"
	if got := reachOf(t, "NP503", proxies, sidecar("a"), sidecar("b")); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := reachOf(t, "NP503", proxies, sidecar("a")); got != "" {
		t.Errorf("two views: %q", got)
	}
}

// reachOf returns the risks with a code that a plan of objects has, for proxies with the label app=NAME.
func reachOf(t *testing.T, code string, proxies []string, puts ...model.Record) string {
	t.Helper()
	b := baseWith(t, []model.Record{service(t, "*")}, func(n *view.Node) { n.Labels = map[string]string{"app": n.Name} }, proxies...)
	p, err := Of(t.Context(), b, b.Resolver.Source().Apply(5, puts, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range p.Report(Usual).Risks {
		if string(r.Code) == code {
			out = append(out, fmt.Sprintf("%s %s: %s %v", r.Level, strings.Join(r.Subjects, " "), r.Text, r.Objects))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
