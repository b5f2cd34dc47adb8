package identities

import (
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/origin"
)

// An identity is a machine's while a WorkloadEntry, a WorkloadGroup or an endpoint of a ServiceEntry in its own
// namespace names it. Pods, and objects of another namespace, do not count.
// Promise: security-workloads.md#identity-and-private-keys, security-workloads.md#renewals-and-revocation
func TestMachines(t *testing.T) {
	endpoints := func(namespace, name string, e *model.Endpoint) model.Record {
		r := &model.Endpoints{Spec: &model.EndpointsSpec{Hosts: []string{"h"}, Endpoints: []*model.Endpoint{e}}}
		r.Meta().Key = model.Key{Kind: model.KindEndpoints, Namespace: namespace, Name: name}
		return r
	}
	workload := func(namespace, name, account string) model.Record {
		r := &model.Workload{Spec: &model.WorkloadSpec{Endpoint: &model.Endpoint{ServiceAccount: account}}}
		r.Meta().Key = model.Key{Kind: model.KindWorkload, Namespace: namespace, Name: name}
		return r
	}
	western := func(r model.Record) model.Record {
		r.Meta().Key.Origin = origin.New("west", origin.Kube)
		return r
	}
	group := func(namespace, name, account string) model.Record {
		r := &model.WorkloadGroup{Spec: &networkingv1.WorkloadGroup{Template: &networkingv1.WorkloadEntry{ServiceAccount: account}}}
		r.Meta().Key = model.Key{Kind: model.KindWorkloadGroup, Namespace: namespace, Name: name}
		return r
	}
	var now *mirror.Snapshot
	is := Machines(func() *mirror.Snapshot { return now })
	vm := spiffeid.RequireFromString("spiffe://cluster.local/ns/shop/sa/vm")
	if is(vm) {
		t.Error("a machine, before anything is known")
	}
	now = mirror.Empty().Apply(1, []model.Record{
		endpoints("shop", "serviceentry:vms", &model.Endpoint{Address: "10.0.0.1", Namespace: "shop", ServiceAccount: "vm"}),
		endpoints("shop", "web-1", &model.Endpoint{Address: "10.0.0.2", Namespace: "shop", ServiceAccount: "pod"}),
		endpoints("other", "serviceentry:vms", &model.Endpoint{Address: "10.0.0.3", Namespace: "shop", ServiceAccount: "claimed"}),
		workload("shop", "workloadentry:vm", "entry"),
		western(workload("shop", "workloadentry:vm", "western")),
		workload("shop", "web-1", "pod"),
		workload("other", "workloadentry:vm", "elsewhere"),
		group("shop", "vms", "grouped"),
		group("other", "vms", "others"),
	}, nil).New
	for account, want := range map[string]bool{"vm": true, "entry": true, "western": true, "grouped": true, "elsewhere": false, "others": false, "pod": false, "claimed": false, "none": false} {
		if got := is(spiffeid.RequireFromString("spiffe://cluster.local/ns/shop/sa/" + account)); got != want {
			t.Errorf("%s: %t", account, got)
		}
	}
	if is(spiffeid.RequireFromString("spiffe://cluster.local/ns/other/sa/claimed")) {
		t.Error("an endpoint of another namespace")
	}
	now = now.Apply(2, nil, []model.Key{{Kind: model.KindEndpoints, Namespace: "shop", Name: "serviceentry:vms"}}).New
	if is(vm) {
		t.Error("a machine whose entry is gone")
	}
	now = now.Apply(3, nil, []model.Key{{Kind: model.KindWorkloadGroup, Namespace: "shop", Name: "vms"}}).New
	if is(spiffeid.RequireFromString("spiffe://cluster.local/ns/shop/sa/grouped")) {
		t.Error("a machine whose group is gone")
	}
}
