package attack

import (
	"fmt"
	"strings"
)

// Tenant is an attack of somebody who may write the objects of one namespace.
type Tenant struct {
	Name string
	// Files are what it writes, by name: YAML.
	Files func() map[string]string
	// Change is the i-th change of one of them; nil: nothing changes.
	Change func(i int) (name, text string)
}

// TenantNamespace has the objects of each Tenant.
const TenantNamespace = "evil"

// Tenants are the attacks, in the order in which they are carried out. Objects of few bytes become much, or change a lot at once.
func Tenants() []Tenant {
	return []Tenant{
		{Name: "entries", Files: func() map[string]string { return entries(256) }},
		{Name: "smaller entries", Files: func() map[string]string { return entries(100) }},
		{Name: "subsets", Files: subsets},
		{Name: "endpoints", Files: endpoints, Change: func(i int) (string, string) { return slice(i%sliceCount, 1+i/sliceCount) }},
	}
}

// entries are five ServiceEntries of 256 hosts by so many ports.
func entries(ports int) map[string]string {
	all := map[string]string{}
	for i := range 5 {
		var b strings.Builder
		fmt.Fprintf(&b, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: e%d, namespace: %s}\nspec:\n  resolution: DNS\n  hosts:\n", i, TenantNamespace)
		for k := range 256 {
			fmt.Fprintf(&b, "  - h%d.e%d.example.com\n", k, i)
		}
		b.WriteString("  ports:\n")
		for k := range ports {
			fmt.Fprintf(&b, "  - {name: p%d, number: %d, protocol: HTTP}\n", k, 10000+k)
		}
		all[fmt.Sprintf("entry%d.yaml", i)] = b.String()
	}
	return all
}

// subsets are 400 Services with a DestinationRule of 500 subsets each.
func subsets() map[string]string {
	all := map[string]string{}
	for i := range 400 {
		var b strings.Builder
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata: {name: s%d, namespace: %s}\nspec: {clusterIP: 10.200.%d.%d, ports: [{name: http, port: 80}]}\n---\n", i, TenantNamespace, i/250, i%250+1)
		fmt.Fprintf(&b, "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: s%d, namespace: %s}\nspec:\n  host: s%d\n  subsets:\n", i, TenantNamespace, i)
		for k := range 500 {
			fmt.Fprintf(&b, "  - {name: v%d, labels: {version: v%d}}\n", k, k)
		}
		all[fmt.Sprintf("rule%d.yaml", i)] = b.String()
	}
	return all
}

// The Service whose endpoints change.
const (
	sliceCount = 100
	perSlice   = 1000
)

// endpoints are a Service of 100,000 endpoints, which only its own namespace sees.
func endpoints() map[string]string {
	all := map[string]string{"big.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: big, namespace: " + TenantNamespace +
		", annotations: {networking.istio.io/exportTo: '.'}}\nspec: {clusterIP: 10.201.0.1, ports: [{name: http, port: 80}]}\n"}
	for i := range sliceCount {
		name, text := slice(i, 0)
		all[name] = text
	}
	return all
}

// slice is one EndpointSlice of it in some version, in which one endpoint is another.
func slice(i, version int) (name, text string) {
	var b strings.Builder
	fmt.Fprintf(&b, `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"big-%d","namespace":%q,"labels":{"kubernetes.io/service-name":"big"}},`+
		`"addressType":"IPv4","ports":[{"name":"http","port":8080}],"endpoints":[`, i, TenantNamespace)
	for k := range perSlice {
		last := k % 250
		if k == 0 {
			last = 250 + version%5
		}
		if k > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"addresses":["10.%d.%d.%d"],"conditions":{"ready":true}}`, 100+i/50, i%50*4+k/250, last)
	}
	b.WriteString("]}\n")
	return fmt.Sprintf("slice%d.json", i), b.String()
}
