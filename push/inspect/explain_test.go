package inspect

import (
	"reflect"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// What made a resource is its Spec, in the words of the user: objects by kind, namespace and name.
func TestInputs(t *testing.T) {
	rule, err := model.New(model.Key{Kind: model.KindDestinationRule, Namespace: "shop", Name: "web"}, 0, &networkingv1.DestinationRule{Host: "web"})
	if err != nil {
		t.Fatal(err)
	}
	var members intern.Table[model.Member]
	got := Inputs(cluster.Outbound{
		Host: "web.shop.svc.cluster.local", Port: 80, Rule: rule.(*model.DestinationRule),
		Members: members.List(model.Member{Endpoint: &model.Endpoint{Address: "10.0.0.1", Namespace: "shop", Workload: "web"}, Port: 8080}),
	})
	want := []Input{
		{"Host", []string{"web.shop.svc.cluster.local"}},
		{"Port", []string{"80"}},
		{"Rule", []string{"DestinationRule shop/web"}},
		{"Members", []string{"10.0.0.1:8080 (shop/web)"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	var destinations intern.Table[vhost.Destination]
	got = Inputs(vhost.Spec{Destinations: destinations.List(vhost.Destination{Host: "a", Cluster: "outbound|80||a"})})
	if want := []Input{{"Destinations", []string{"{Host=a Cluster=outbound|80||a}"}}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}
