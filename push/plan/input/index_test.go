package input

import (
	"slices"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// wildcardsIn lists the keys whose names are wildcards, sorted.
func wildcardsIn(keys []model.Key) string {
	var names []string
	for _, key := range keys {
		if IsWildcard(key.Name) {
			names = append(names, key.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " ")
}

// The VirtualServices of a host are those that name it, or a wildcard that covers it; the ones of a wildcard also those
// that name a host that it covers.
func TestRouting(t *testing.T) {
	var edits []mirror.Edit
	for _, host := range []string{"www.example.com", "example.com", "*.example.com", "*.a.example.com", "x.a.example.com", "*-a.example.com", "*.com", "notexample.com"} {
		key := model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: host}
		r, err := model.New(key, 0, &networkingv1.VirtualService{Hosts: []string{host}, Tcp: []*networkingv1.TCPRoute{{}}})
		if err != nil {
			t.Fatal(err)
		}
		edits = append(edits, mirror.Edit{New: r})
	}
	for host, want := range map[string]string{
		"www.example.com":   "*.com *.example.com www.example.com",
		"y.example.com":     "*.com *.example.com",
		"x.a.example.com":   "*.a.example.com *.com *.example.com x.a.example.com",
		"one-a.example.com": "*-a.example.com *.com *.example.com",
		"*.example.com":     "*-a.example.com *.a.example.com *.com *.example.com www.example.com x.a.example.com",
		"*.a.example.com":   "*.a.example.com *.com *.example.com x.a.example.com",
		"*-a.example.com":   "*-a.example.com *.com *.example.com",
		"example.com":       "*.com example.com",
		"example.org":       "",
	} {
		x := (&Index{}).With(edits)
		var got []string
		for _, key := range x.routingOf(host) {
			got = append(got, key.Name)
		}
		slices.Sort(got)
		if all := strings.Join(slices.Compact(got), " "); all != want {
			t.Errorf("%s: %s, want %s", host, all, want)
		}
		for _, key := range got {
			if !Covers(key, host) && !Covers(host, key) {
				t.Errorf("%s and %s have nothing in common", host, key)
			}
		}
		if got, want := wildcardsIn(x.overlapping(host)), wildcardsIn(x.routingOf(host)); got != want {
			t.Errorf("%s: the overlapping wildcards are %s, want %s", host, got, want)
		}
		var gone []mirror.Edit
		for _, e := range edits {
			gone = append(gone, mirror.Edit{Old: e.New})
		}
		for _, key := range x.With(gone).routingOf(host) {
			t.Errorf("%s: %s is gone, and found", host, key.Name)
		}
	}
}
