package analysis

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// A VirtualService that exportTo hides from all workloads of a Gateway that it names has a warning, which ends when a
// workload in one of the namespaces appears. A Gateway that selects nothing has a warning of its own.
func TestHiddenRoutes(t *testing.T) {
	const (
		front  = "Gateway edge/front {selector: {app: gw}, servers: [{hosts: ['*']}]}"
		router = "Workload edge/gw {endpoint: {labels: {app: gw}}}"
		second = "Workload shop/gw {endpoint: {labels: {app: gw}}}"
		to     = "VirtualService shop/v {hosts: [a.test], gateways: [edge/front], exportTo: ["
	)
	said := []string{"VirtualService v spec.exportTo NoEffect"}
	for _, c := range []struct {
		name    string
		records []string
		mend    string
		want    []string
	}{
		{"its own namespace alone", []string{front, router, to + "shop]}"}, to + "edge, shop]}", said},
		{"nobody", []string{front, router, to + "'~']}"}, to + "'*']}", said},
		{"a gateway of its own appears", []string{front, router, to + "shop]}"}, second, said},
		{"the gateway's namespace leaves", []string{front, router, second, to + "shop]}", "-" + second}, to + "edge]}", said},
		{"one of two namespaces", []string{front, router, second, to + "shop]}"}, "", nil},
		{"exported to the gateway", []string{front, router, to + "edge]}"}, "", nil},
		{"other labels", []string{front, router, pod, to + "shop]}"}, second, said},
		{"the mesh alone", []string{router, "VirtualService shop/v {hosts: [a.test], gateways: [mesh], exportTo: [shop]}"}, "", nil},
		{"the Gateway selects nothing", []string{front, pod, to + "shop]}"}, second, []string{"Gateway front spec.selector NoEffect IST0101"}},
	} {
		warns(t, c.name, c.records, c.mend, c.want)
	}
}

// With PILOT_SCOPE_GATEWAY_TO_NAMESPACE a Gateway whose workloads are elsewhere has a warning, with a selector and
// without one, and a VirtualService is compared with the Gateway's namespace.
func TestGatewaysOfTheirNamespace(t *testing.T) {
	const (
		router  = "Workload edge/gw {endpoint: {labels: {app: gw}}}"
		foreign = "Gateway shop/foreign {selector: {app: gw}}"
	)
	for _, c := range []struct {
		records        []string
		scoped, shared string
	}{
		{[]string{router, foreign}, "Gateway foreign spec.selector NoEffect IST0101", ""},
		{[]string{router, "Gateway shop/all {}"}, "Gateway all spec.selector NoEffect IST0101", ""},
		{[]string{router, "Gateway edge/own {selector: {app: gw}}"}, "", ""},
		{[]string{foreign}, "", ""},
		{[]string{router, "Gateway edge/own {selector: {app: gw}, servers: [{hosts: ['*']}]}", "Workload shop/gw {endpoint: {labels: {app: gw}}}",
			"VirtualService shop/v {hosts: [a.test], gateways: [edge/own], exportTo: [shop]}"}, "VirtualService v spec.exportTo NoEffect", ""},
	} {
		var records []model.Record
		for _, text := range c.records {
			records = append(records, record(t, text))
		}
		for own, want := range map[bool]string{true: c.scoped, false: c.shared} {
			all := Of(Settings{OwnGateways: own}, slices.Values(records)).Problems()
			if got := strings.Join(lines(t, all), "\n"); got != want {
				t.Errorf("%v, scoped %v: %q, want %q", c.records, own, got, want)
			}
			for _, p := range all {
				if strings.Contains(p.Message, "edge") && strings.HasPrefix(p.ID.Name, "foreign") {
					t.Errorf("%s names the namespace of others' Pods", p.Message)
				}
			}
		}
	}
	a, all := New(Settings{OwnGateways: true}), map[model.Key]model.Record{}
	for _, text := range []string{router, foreign, "Workload shop/gw {endpoint: {labels: {app: gw}}}"} {
		r := record(t, text)
		all[r.Meta().Key] = r
		a.Step([]Edit{{New: r}})
		if got, want := a.Problems(), Of(Settings{OwnGateways: true}, maps.Values(all)).Problems(); !slices.Equal(got, want) {
			t.Errorf("%s: step by step %v, from scratch %v", text, got, want)
		}
	}
	if got := a.Problems(); len(got) > 0 {
		t.Errorf("with a workload of its namespace: %v", got)
	}
}
