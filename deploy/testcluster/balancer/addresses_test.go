package balancer

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var both = Ranges{netip.MustParsePrefix("192.0.2.0/29"), netip.MustParsePrefix("2001:db8::/126")}

// service is of type LoadBalancer; the number is its age.
func service(name string, age int, families ...corev1.IPFamily) *corev1.Service {
	if len(families) == 0 {
		families = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: types.UID(name),
			CreationTimestamp: metav1.NewTime(time.Unix(int64(1000-age), 0))},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, IPFamilies: families}}
}

// apply assigns, and stores what is written; the result is "name=addresses" of it, and "name?" of what waits.
func apply(t *table, services ...*corev1.Service) string {
	updates, pending := t.assign(services)
	var said []string
	for _, u := range updates {
		for _, s := range services {
			if s.UID == u.UID {
				s.Status = u.Status
			}
		}
		said = append(said, fmt.Sprintf("%s=%v", u.Name, addressesOf(u)))
	}
	for _, s := range pending {
		said = append(said, s.Name+"?")
	}
	return strings.Join(said, " ")
}

func TestAddresses(t *testing.T) {
	table := newTable(both)
	expect := func(what, want string, services ...*corev1.Service) {
		t.Helper()
		if got := apply(table, services...); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	a, b := service("a", 1), service("b", 2, corev1.IPv4Protocol, corev1.IPv6Protocol)
	expect("the oldest first, one of each family", "b=[192.0.2.1 2001:db8::1] a=[192.0.2.2]", a, b)
	expect("nothing changes", "", a, b)
	a.Status = corev1.ServiceStatus{}
	expect("a status that was read before it was written", "a=[192.0.2.2]", a, b)

	class := "other"
	foreign, plain := service("foreign", 3), service("plain", 3)
	foreign.Spec.LoadBalancerClass, plain.Spec.Type = &class, corev1.ServiceTypeClusterIP
	foreign.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.2"}}
	expect("others' Services", "", a, b, foreign, plain)

	asks, far, taken := service("asks", 0), service("far", 0), service("taken", 0)
	asks.Spec.LoadBalancerIP, far.Spec.LoadBalancerIP, taken.Spec.LoadBalancerIP = "192.0.2.6", "198.51.100.1", "192.0.2.1"
	expect("requested addresses", "asks=[192.0.2.6] far? taken?", a, b, asks, far, taken)
	asks.Spec.LoadBalancerIP = "192.0.2.7"
	expect("another request", "asks=[192.0.2.7]", a, b, asks)

	expect("a Service that has gone", "", a, asks)
	expect("its address rests", "c=[192.0.2.3]", a, asks, service("c", 0))
	a.Spec.Type = corev1.ServiceTypeClusterIP
	expect("another type", "a=[]", a, asks)
	expect("after another type", "", a, asks)

	full := newTable(Ranges{netip.MustParsePrefix("192.0.2.0/30")})
	got := apply(full, service("d", 4), service("e", 3), service("f", 2), service("g", 1), service("h", 1, corev1.IPv6Protocol))
	if got != "d=[192.0.2.1] e=[192.0.2.2] f=[192.0.2.3] g? h?" {
		t.Errorf("a range that is full, a family without a range: %q", got)
	}
	if got := apply(full, service("g", 1), service("i", 0)); got != "g=[192.0.2.1] i=[192.0.2.2]" {
		t.Errorf("after others have gone: %q", got)
	}
}

// A controller that begins again keeps what Services have, and gives nobody else these addresses.
func TestAddressesAreAdopted(t *testing.T) {
	old, young := service("old", 5), service("young", 1)
	young.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	if got := apply(newTable(both), old, young); got != "old=[192.0.2.2]" {
		t.Errorf("%q", got)
	}
}
