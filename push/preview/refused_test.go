package preview

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// terminating returns a Gateway of a namespace whose server has a certificate from a Secret.
func terminating(t *testing.T, namespace, credential string, selector map[string]string) model.Record {
	server := &networkingv1.Server{Port: &networkingv1.Port{Number: 8443, Name: "https", Protocol: "HTTPS"}, Hosts: []string{"*"},
		Tls: &networkingv1.ServerTLSSettings{Mode: networkingv1.ServerTLSSettings_SIMPLE, CredentialName: credential}}
	return record(t, model.KindGateway, namespace, "g", &networkingv1.Gateway{Selector: selector, Servers: []*networkingv1.Server{server}})
}

// lists lets service accounts of a namespace list its Secrets.
func lists(t *testing.T, namespace string, accounts ...string) model.Record {
	return record(t, model.KindSecretReader, namespace, "secrets", &model.SecretReaderSpec{Accounts: accounts})
}

// authenticated gives a proxy the service account of its own name, and the label app=edge, which it only claims.
func authenticated(n *view.Node) {
	n.Verified, n.Labels = view.Identity{Namespace: n.Namespace, Account: n.Name}, map[string]string{"app": "edge"}
}

// refusals returns the risks NP406 of a change.
func refusals(t *testing.T, b *plan.Base, sees Sees, puts ...model.Record) string {
	t.Helper()
	p, err := Of(t.Context(), b, b.Resolver.Source().Apply(5, puts, nil), sees)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Views) == 0 {
		t.Fatal("the change affects no proxy")
	}
	var out []string
	for _, r := range p.Report(Usual).Risks {
		if r.Code == "NP406" {
			out = append(out, fmt.Sprintf("%s %s: %s %v %d", r.Level, strings.Join(r.Subjects, " "), r.Text, r.Objects, r.Proxies))
		}
	}
	return strings.Join(out, "\n")
}

// NP406: a Gateway names a Secret that the identity of the proxies may not have. Near misses: the identity may list
// Secrets, by a binding that exists, by one of the change, or by the answer of an authoriser; no binding is known.
// Promise: risks.md#security
func TestRefusedSecrets(t *testing.T) {
	const subject = "high listener 0.0.0.0_8443: Secret "
	const unused = "kubernetes://site: no Gateway, DestinationRule or EnvoyFilter that selects workloads of service account shop/edge refers to it"
	edge := view.Identity{Namespace: "shop", Account: "edge"}
	all, some := map[string]string(nil), map[string]string{"app": "edge"}
	for _, c := range []struct {
		name, credential string
		selector         map[string]string
		has, more        []model.Record
		proxies          string
		known            access.Standing
		want             string
	}{
		{"no binding of the account", "site", all, []model.Record{lists(t, "shop", "shop/other")}, nil, "edge.shop", access.Standing{},
			"kubernetes://site: service account shop/edge may not list Secrets: no RoleBinding of namespace shop"},
		{"a binding of another namespace", "site", all, []model.Record{lists(t, "pay", "shop/edge")}, nil, "edge.shop", access.Standing{},
			"service account shop/edge may not list Secrets: no RoleBinding of namespace shop"},
		{"an authoriser refuses", "site", all, nil, nil, "edge.shop", access.Standing{Known: true, Why: "it is told so"},
			"service account shop/edge may not list Secrets: it is told so"},
		{"a Secret of another namespace", "pay/site", all, []model.Record{lists(t, "", "*/*")}, nil, "edge.shop", access.Standing{},
			"the name does not lead to a Secret of its namespace shop"},
		{"labels that the configuration lacks", "site", some, []model.Record{lists(t, "", "*/*")}, nil, "edge.shop", access.Standing{}, unused},
		{"one of two accounts", "site", all, []model.Record{lists(t, "shop", "shop/edge-a")}, nil, "edge-a.shop edge-b.shop", access.Standing{},
			"(1 of 2 identities are refused)"},
		{"a binding", "site", all, []model.Record{lists(t, "shop", "shop/edge")}, nil, "edge.shop", access.Standing{}, ""},
		{"a binding of the change", "site", all, []model.Record{lists(t, "pay", "pay/edge")}, []model.Record{lists(t, "shop", "shop/edge")},
			"edge.shop", access.Standing{}, ""},
		{"an authoriser allows", "site", all, []model.Record{lists(t, "pay", "pay/edge")}, nil, "edge.shop",
			access.Standing{Known: true, Allowed: true}, ""},
		{"no binding is known", "site", all, nil, nil, "edge.shop", access.Standing{}, ""},
		{"the certificate of the mesh", "builtin://", all, []model.Record{lists(t, "pay", "pay/edge")}, nil, "edge.shop", access.Standing{}, ""},
	} {
		b := baseWith(t, append(c.has, service(t, "*")), authenticated, strings.Fields(c.proxies)...)
		if c.known.Known { // the right is needed once a proxy asks for a Secret that it may use
			before := b.Resolver.Source().Apply(5, []model.Record{terminating(t, "shop", "old", nil), keyed(t, "shop", "old")}, nil)
			if _, err := b.Apply(t.Context(), before); err != nil {
				t.Fatal(err)
			}
			for h := range b.Planner.Handles() {
				b.Planner.SubscribeSecrets(h, []string{"kubernetes://old"}, nil)
			}
			b.Planner.Authorised(edge, c.known)
		}
		got := refusals(t, b, nil, append(c.more, terminating(t, "shop", c.credential, c.selector))...)
		fires := strings.HasPrefix(got, subject) && strings.Contains(got, c.want) && strings.Contains(got, "[Gateway shop/g]")
		if (c.want != "") != fires || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// keyed returns a Secret with a private key.
func keyed(t *testing.T, namespace, name string) model.Record {
	return record(t, model.KindSecret, namespace, name, &model.SecretSpec{Chain: []byte("c"), Key: []byte("k"), Mac: []byte("m")})
}

// A tenant's risks do not depend on other namespaces' Secrets, nor on objects that refer to Secrets of the same name.
func TestRefusedSecretsOfOthers(t *testing.T) {
	own := func(namespace string) bool { return namespace == "shop" }
	others := [][]model.Record{nil, {keyed(t, "pay", "site")}, {terminating(t, "pay", "shop/site", map[string]string{"app": "other"})},
		{keyed(t, "pay", "site"), terminating(t, "pay", "site", map[string]string{"app": "other"}), lists(t, "pay", "pay/edge", "shop/edge")}}
	for _, credential := range []string{"site", "pay/site"} {
		seen := map[string]bool{}
		for _, has := range others {
			has = append([]model.Record{service(t, "*"), lists(t, "shop", "shop/edge")}, has...)
			b := baseWith(t, has, authenticated, "edge.shop", "edge.pay")
			seen[refusals(t, b, own, terminating(t, "shop", credential, map[string]string{"app": "edge"}))] = true
		}
		if len(seen) != 1 || seen[""] {
			t.Errorf("%s: %q", credential, slices.Collect(maps.Keys(seen)))
		}
	}
}

// Each optional field of meaning.View is set, so that no code of package meaning is silent for want of a field.
func TestViewsForMeaningAreComplete(t *testing.T) {
	job := record(t, model.KindWorkload, "shop", "job", &model.WorkloadSpec{Endpoint: &model.Endpoint{Address: "10.1.0.1"}})
	b := baseOf(t, []model.Record{service(t, "*"), job}, "a.shop")
	c := b.Resolver.Source().Apply(5, []model.Record{route(t, "nowhere.shop.svc.cluster.local")}, nil)
	before := b.Planner.Handles()
	moved, err := b.Apply(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	j := newJudge(b, c, nil)
	got := reflect.ValueOf(j.view(alike(viewsOf(moved, before))[0]))
	for i := range got.NumField() {
		if got.Field(i).IsZero() {
			t.Errorf("View.%s is not set", got.Type().Field(i).Name)
		}
	}
}
