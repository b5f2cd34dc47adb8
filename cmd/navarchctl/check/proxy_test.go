package check

import (
	"slices"
	"testing"
	"time"
)

// Each fault of a proxy turns exactly its check red.
// Promise: checks.md#one-proxy
func TestOfProxy(t *testing.T) {
	now := time.Unix(10_000, 0)
	for _, one := range []struct {
		fault string
		spoil func(*Proxy)
		want  []Name // failures and warnings
		ends  bool   // nothing else can be said
	}{
		{"none", func(*Proxy) {}, nil, false},
		{"not connected", func(p *Proxy) { p.Replicas = nil }, []Name{NameConnected}, true},
		{"not known", func(p *Proxy) { p.Replicas, p.Missing = nil, []string{"b"} }, nil, true},
		{"two streams", func(p *Proxy) { p.Replicas = []string{"a", "b"} }, []Name{NameConnected}, false},
		{"just behind", func(p *Proxy) { p.Behind, p.Since = []string{"routes"}, now.Add(-behindProxy) }, nil, false},
		{"long behind", func(p *Proxy) { p.Behind, p.Since = []string{"routes"}, now.Add(-behindProxy-time.Second) }, []Name{NameInSync}, false},
		{"behind since an unknown time", func(p *Proxy) { p.Behind = []string{"routes"} }, []Name{NameInSync}, false},
		{"refused", func(p *Proxy) { p.Refused = []string{"route 80"} }, []Name{NameRefused}, false},
		{"withheld", func(p *Proxy) { p.Withheld = []string{"route 80"} }, []Name{NameWithheld}, false},
		{"errors", func(p *Proxy) { p.Errors = []string{"VirtualService shop/web: x"} }, []Name{NameProxyObjects}, false},
	} {
		p := Proxy{Name: "web.shop", Replicas: []string{"a"}}
		one.spoil(&p)
		var red []Name
		all := OfProxy(p, now)
		for _, r := range all {
			if r.Status == Warning || r.Status == Failure {
				red = append(red, r.Name)
			}
			if r.Status != OK && r.Do == "" || r.Limit == "" || r.Figure == "" || r.Remedy == "" {
				t.Errorf("%s: %+v", one.fault, r)
			}
		}
		if !slices.Equal(red, one.want) || (len(all) == 1) != one.ends {
			t.Errorf("%s: red are %v of %d checks, want %v", one.fault, red, len(all), one.want)
		}
	}
}
