package attack

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Tenant is an attack by a user who may write the objects of one namespace.
type Tenant struct {
	Name string
	// Files returns the YAML files that the user writes, by name.
	Files func() map[string]string
	// Change returns the i-th change of one of the files; nil: no changes.
	Change func(i int) (name, text string)
	// Pods counts the proxies of the namespace that join while the files are there.
	Pods int
}

// TenantNamespace is the namespace of each Tenant's objects.
const TenantNamespace = "evil"

// Tenants are the attacks, in the order in which they are carried out. Objects of few bytes become much, change a lot
// at once, or are deleted together with objects of others. The last attack is all of them at once.
func Tenants() []Tenant {
	all := []Tenant{
		{Name: "entries", Files: func() map[string]string { return entries(256) }},
		{Name: "smaller entries", Files: func() map[string]string { return entries(100) }},
		{Name: "subsets", Files: subsets},
		{Name: "endpoints", Files: endpoints, Change: func(i int) (string, string) { return slice(i%sliceCount, 1+i/sliceCount) }},
		{Name: "patches", Files: func() map[string]string { return patches("CLUSTER") }, Pods: 1},
		{Name: "route patches", Files: func() map[string]string { return patches("HTTP_ROUTE") }, Pods: 1},
		{Name: "routes", Files: routes},
		{Name: "subnets", Files: subnets},
		{Name: "removals", Files: policies},
	}
	return append(all, together(all))
}

// Together is the name of the attack that is all others at once.
const Together = "all together"

// together is several attacks at once. Of two files with one name the first counts.
func together(all []Tenant) Tenant {
	sum := Tenant{Name: Together, Files: func() map[string]string {
		files := map[string]string{}
		for _, a := range slices.Backward(all) {
			maps.Copy(files, a.Files())
		}
		return files
	}}
	for _, a := range all {
		if sum.Pods += a.Pods; a.Change != nil {
			sum.Change = a.Change
		}
	}
	return sum
}

// entries returns five ServiceEntries, each with 256 hosts and the given number of ports.
func entries(ports int) map[string]string {
	all := map[string]string{}
	for i := range 5 {
		var b strings.Builder
		fmt.Fprintf(&b,
			"apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: e%d, namespace: %s}\nspec:\n  resolution: DNS\n  "+
				"hosts:\n", i, TenantNamespace)
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

// subsets returns 400 Services, each with a DestinationRule of 500 subsets.
func subsets() map[string]string {
	all := map[string]string{}
	for i := range 400 {
		var b strings.Builder
		fmt.Fprintf(&b,
			"apiVersion: v1\nkind: Service\nmetadata: {name: s%d, namespace: %s}\nspec: {clusterIP: 10.200.%d.%d, ports: [{name: http, "+
				"port: 80}]}\n---\n", i, TenantNamespace, i/250, i%250+1)
		fmt.Fprintf(&b,
			"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: s%d, namespace: %s}\nspec:\n  host: s%d\n  "+
				"subsets:\n", i, TenantNamespace, i)
		for k := range 500 {
			fmt.Fprintf(&b, "  - {name: v%d, labels: {version: v%d}}\n", k, k)
		}
		all[fmt.Sprintf("rule%d.yaml", i)] = b.String()
	}
	return all
}

// Sizes of the Service whose endpoints change.
const (
	sliceCount = 100
	perSlice   = 1000
)

// endpoints returns a Service with 100,000 endpoints that is visible in its own namespace only.
func endpoints() map[string]string {
	all := map[string]string{"big.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: big, namespace: " + TenantNamespace +
		", annotations: {networking.istio.io/exportTo: '.'}}\nspec: {clusterIP: 10.201.0.1, ports: [{name: http, port: 80}]}\n"}
	for i := range sliceCount {
		name, text := slice(i, 0)
		all[name] = text
	}
	return all
}

// slice returns EndpointSlice i of that Service in a version, which decides one of its endpoints.
func slice(i, version int) (name, text string) {
	var b strings.Builder
	fmt.Fprintf(&b, `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice",`+
		`"metadata":{"name":"big-%d","namespace":%q,"labels":{"kubernetes.io/service-name":"big"}},`+
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

// patches are an EnvoyFilter of 38 KB: 250 patches of what every proxy of the namespace has of one kind.
func patches(to string) map[string]string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\n"+
		"metadata: {name: %s, namespace: %s}\nspec:\n  configPatches:\n",
		strings.ReplaceAll(strings.ToLower(to), "_", "-"), TenantNamespace)
	for i := range 250 {
		fmt.Fprintf(&b, "  - {applyTo: %s, match: {context: SIDECAR_OUTBOUND}, patch: {operation: MERGE, "+
			"value: {metadata: {filter_metadata: {evil: {k%d: v%d}}}}}}\n", to, i, i)
	}
	return map[string]string{strings.ToLower(to) + ".yaml": b.String()}
}

// routes are 400 Services with a VirtualService of 500 routes each.
func routes() map[string]string {
	all := map[string]string{}
	for i := range 400 {
		var b strings.Builder
		fmt.Fprintf(&b, `{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":"r%d","namespace":%q},`+
			`"spec":{"hosts":["r%[1]d"],"http":[`, i, TenantNamespace)
		for k := range 500 {
			if k > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"match":[{"uri":{"prefix":"/p%d"}}],"route":[{"destination":{"host":"r%d"}}]}`, k, i)
		}
		b.WriteString("]}}\n")
		all[fmt.Sprintf("routes%d.json", i)] = b.String()
		all[fmt.Sprintf("routed%d.json", i)] = fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"r%d","namespace":%q},`+
			`"spec":{"clusterIP":"10.202.%d.%d","ports":[{"name":"http","port":80}]}}`+"\n", i, TenantNamespace, i/250, i%250+1)
	}
	return all
}

// subnets are five VirtualServices of 40,000 networks each, in which nothing is.
func subnets() map[string]string {
	all := map[string]string{}
	for i := range 5 {
		all[fmt.Sprintf("subnets%d.json", i)] = string(ManySubnets(TenantNamespace, fmt.Sprintf("subnets%d", i), 40_000)) + "\n"
	}
	return all
}

// policies are 60 policies, which are deleted at once.
func policies() map[string]string {
	all := map[string]string{}
	for i := range 60 {
		name := fmt.Sprintf("policy%d", i)
		all[name+".yaml"] = Policy(TenantNamespace, name)
	}
	return all
}

// Policy is an AuthorizationPolicy of a namespace that allows its own callers. It selects no workload, so no proxy has
// another listener while it is there.
func Policy(namespace, name string) string {
	return fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: %s, namespace: %s}\n"+
		"spec: {selector: {matchLabels: {app: %[1]s}}, action: ALLOW, rules: [{from: [{source: {namespaces: [%[2]s]}}]}]}\n", name, namespace)
}
