package edge

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
)

// dnsServicePort is the port of DNS destinations, by which the EnvoyFilter names them.
const dnsServicePort = 7070

// common returns the objects of the whole mesh: the gateway's Pod and right to its Secrets, and the DNS server.
func (m *Mesh) common() string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: gateway-0, namespace: shop, labels: {app: gateway}}
spec: {serviceAccountName: gateway, containers: [{name: istio-proxy, image: app}]}
status: {phase: Running, podIP: %[1]s.7}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: gateway, namespace: shop}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get, watch, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: gateway, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: gateway}
subjects: [{kind: ServiceAccount, name: gateway, namespace: shop}]
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: resolver, namespace: shop}
spec:
  configPatches:
  - applyTo: CLUSTER
    match: {context: GATEWAY, cluster: {portNumber: %[2]d}}
    patch:
      operation: MERGE
      value:
        typed_dns_resolver_config:
          name: envoy.network.dns_resolver.cares
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig
            resolvers: [{socket_address: {address: %[1]s.%[3]d, port_value: %[4]d}}]
`, m.Net, dnsServicePort, dnsAddress, dnsPort)
}

// pods returns a Pod for each address of the services. Addresses alternate between the versions v1 and v2.
func (s *site) pods() string {
	var b strings.Builder
	for _, service := range []string{"a", "b"} {
		for i := range perService {
			fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Pod\n"+
				"metadata: {name: %s-%s-%d, namespace: shop, labels: {app: %s-%s, version: v%d}}\nspec: {serviceAccountName: default, containers: [{name: app, image: app}]}\nstatus: {phase: Running, podIP: %s}\n",
				s.name, service, i, s.name, service, 1+i%2, s.address(service, i))
		}
	}
	return b.String()
}

// writeService writes a Service and its EndpointSlice.
func (s *site) writeService(name string) error {
	v := s.services[name]
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: v1
kind: Service
metadata: {name: %[1]s-%[2]s, namespace: shop}
spec: {clusterIP: 10.97.%[3]d.%[4]d, selector: {app: %[1]s-%[2]s}, ports: [{name: %[5]s, port: 80, targetPort: %[6]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-%[2]s-1, namespace: shop, labels: {kubernetes.io/service-name: %[1]s-%[2]s}}
addressType: IPv4
ports: [{name: %[5]s, port: %[6]d}]
endpoints:
`, s.name, name, s.number, 1+int(name[0]-'a'), v.portName, backendPort)
	for i := 2 * v.pair; i < 2*v.pair+2; i++ {
		fmt.Fprintf(&b, "- {addresses: [%s], conditions: {ready: true}, targetRef: {kind: Pod, name: %s-%s-%d, namespace: shop}}\n",
			s.address(name, i), s.name, name, i)
	}
	return s.m.write(s.serviceFile(name), b.String())
}

func (s *site) serviceFile(name string) string { return s.name + "-service-" + name + ".yaml" }

// writeRule writes the DestinationRules, one for each service, with all subsets.
func (s *site) writeRule() error {
	var b strings.Builder
	for _, name := range []string{"a", "b"} {
		fmt.Fprintf(&b, "---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: %s-%s, namespace: shop}\n"+
			"spec:\n  host: %[1]s-%[2]s.shop.svc.cluster.local\n  trafficPolicy: {connectionPool: {tcp: {connectTimeout: %ds}}}\n  subsets:\n",
			s.name, name, s.timeout)
		for _, subset := range slices.Sorted(maps.Keys(s.subsets)) {
			fmt.Fprintf(&b, "  - {name: %s, labels: {version: %s}}\n", subset, s.subsets[subset])
		}
	}
	return s.m.write(s.name+"-rule.yaml", b.String())
}

// writeGateway writes the Gateway, with a server for HTTP and one for HTTPS.
func (s *site) writeGateway() error {
	_, plain, _ := net.SplitHostPort(s.m.Plain)
	return s.m.write(s.name+"-gateway.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: %s, namespace: shop}
spec:
  selector: {app: gateway}
  servers:
  - {port: {number: %s, name: http, protocol: HTTP}, hosts: [%s]}
  - %s
`, s.name, plain, s.hosts(), s.server(s.hosts())))
}

// server returns an HTTPS server with the site's certificate.
func (s *site) server(hosts string) string {
	_, secure, _ := net.SplitHostPort(s.m.TLS)
	return fmt.Sprintf("{port: {number: %s, name: https, protocol: HTTPS}, hosts: [%s], tls: {mode: SIMPLE, credentialName: %s}}",
		secure, hosts, s.name)
}

func (s *site) hosts() string { return strings.Join(append([]string{s.host}, s.extra...), ", ") }

// writeRoutes writes the newest edition of the VirtualService.
func (s *site) writeRoutes() error {
	return s.m.write(s.routesFile(s.suffix), s.virtualService(s.name+"-"+s.suffix, s.name, s.hosts()))
}

func (s *site) routesFile(suffix string) string { return s.name + "-routes-" + suffix + ".yaml" }

func (s *site) virtualService(name, gateway, hosts string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %s, namespace: shop}
spec:
  hosts: [%s]
  gateways: [%s]
  http:
  - headers: {response: {set: {x-edition: "%d"}}}
    route:
`, name, hosts, gateway, s.editions)
	for _, r := range s.routes {
		host, port, subset := s.name+"-"+r.service+".shop.svc.cluster.local", 80, ""
		if _, is := s.entries[r.service]; is {
			host, port = r.service, dnsServicePort
		}
		if r.subset != "" {
			subset = ", subset: " + r.subset
		}
		fmt.Fprintf(&b, "    - {destination: {host: %s, port: {number: %d}%s}, weight: %d}\n", host, port, subset, r.weight)
	}
	return b.String()
}

// writeEntry writes the ServiceEntry of a DNS destination.
func (s *site) writeEntry(host, name string) error {
	return s.m.write(entryFile(host), fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[1]s]
  ports: [{number: %[2]d, targetPort: %[3]d, name: http, protocol: HTTP}]
  resolution: DNS
  endpoints: [{address: %[4]s}]
`, host, dnsServicePort, backendPort, name))
}

func entryFile(host string) string { return "entry-" + host + ".yaml" }

// certify writes a Secret with a new certificate, and returns its serial number.
func (s *site) certify() (serial int64, err error) {
	cert, key, serial, err := s.m.keys.issue(s.host, "*."+s.host)
	if err != nil {
		return 0, err
	}
	encode := base64.StdEncoding.EncodeToString
	return serial, s.m.write(s.name+"-secret.yaml", fmt.Sprintf(
		"apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {name: %s, namespace: shop}\ndata: {tls.crt: %s, tls.key: %s}\n",
		s.name, encode(cert), encode(key)))
}
