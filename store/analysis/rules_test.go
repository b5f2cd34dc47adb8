package analysis

import "testing"

// Rules that no server of a VirtualService's Gateways reads have a warning, as long as they are not for sidecars too.
func TestUnreadRules(t *testing.T) {
	const (
		gateway = "Gateway edge/g {servers: ["
		plain   = gateway + "{port: {number: 80, protocol: HTTP}, hosts: ['*']}]}"
		both    = gateway + "{port: {number: 80, protocol: HTTP}, hosts: ['*']}, {port: {number: 443, protocol: HTTPS}, tls: {mode: SIMPLE}, hosts: ['*']}]}"
		passing = gateway + "{port: {number: 443, protocol: TLS}, tls: {mode: PASSTHROUGH}, hosts: ['*.test']}]}"
		ending  = gateway + "{port: {number: 443, protocol: TLS}, tls: {mode: SIMPLE}, hosts: [a.test]}]}"
		secure  = gateway + "{port: {number: 443, protocol: HTTPS}, tls: {mode: SIMPLE}, hosts: [a.test]}]}"
		tcp     = gateway + "{port: {number: 9000, protocol: TCP}, hosts: ['*']}]}"
		other   = "Gateway edge/h {servers: [{port: {number: 8000, protocol: HTTP}, hosts: ['*']}]}"
		v       = "VirtualService edge/v {hosts: [a.test], gateways: [edge/g], "
		http    = v + "http: [{match: [{port: "
		tls     = v + "tls: [{match: [{sniHosts: [a.test], port: "
	)
	for _, c := range []struct {
		name    string
		records []string
		mend    string
		want    []string
	}{
		{"the port of a destination", []string{plain, http + "8000}]}]}"}, http + "80}]}]}", []string{"VirtualService v spec.http[0].match[0].port NoEffect"}},
		{"a second match", []string{plain, http + "80}, {port: 8080}]}]}"}, http + "80}]}]}",
			[]string{"VirtualService v spec.http[0].match[1].port NoEffect"}},
		{"one of the ports of the Gateway", []string{both, http + "443}]}]}"}, "", nil},
		{"a port of another Gateway", []string{plain, other, "VirtualService edge/v {hosts: [a.test], gateways: [edge/g, edge/h], http: [{match: [{port: 8000}]}]}"},
			"", nil},
		{"a port of another Gateway than that of the match", []string{plain, other, "VirtualService edge/v {hosts: [a.test], gateways: [edge/g, edge/h], " +
			"http: [{match: [{port: 8000, gateways: [edge/g]}]}]}"}, "", []string{"VirtualService v spec.http[0].match[0].port NoEffect"}},
		{"for sidecars too", []string{plain, "VirtualService edge/v {hosts: [a.test], gateways: [edge/g, mesh], http: [{match: [{port: 8000}]}]}"}, "", nil},
		{"for sidecars alone", []string{plain, "VirtualService edge/v {hosts: [a.test], gateways: [edge/g, mesh], tls: [{match: [" +
			"{port: 443, sniHosts: [a.test], gateways: [mesh]}]}], http: [{match: [{port: 80, gateways: [edge/g]}]}]}"}, "", nil},
		{"the bound port of a passthrough", []string{passing, tls + "8443}]}]}"}, tls + "443}]}]}",
			[]string{"VirtualService v spec.tls[0].match[0].port NoEffect"}},
		{"tls at HTTPS", []string{secure, tls + "443}]}]}"}, passing, []string{"VirtualService v spec.tls[0] NoEffect"}},
		{"http at TLS that ends", []string{ending, v + "http: [{}, {}]}"}, secure, []string{"VirtualService v spec.http[0] NoEffect"}},
		{"tcp at TLS that ends", []string{ending, v + "tcp: [{match: [{port: 443}]}]}"}, "", nil},
		{"http at MONGO", []string{"Gateway edge/g {servers: [{port: {number: 27017, protocol: MONGO}, hosts: ['*']}]}", v + "http: [{}]}"}, plain,
			[]string{"VirtualService v spec.http[0] NoEffect"}},
		{"AUTO_PASSTHROUGH", []string{gateway + "{port: {number: 15443, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}, hosts: ['*.test']}]}",
			v + "http: [{}]}"}, "", nil},
		{"http at a passthrough", []string{passing, v + "http: [{}]}"}, both, []string{"VirtualService v spec.http[0] NoEffect"}},
		{"http beside the tls of a passthrough", []string{passing, v + "http: [{}], tls: [{match: [{port: 443, sniHosts: [a.test]}]}]}"}, v +
			"tls: [{match: [{port: 443, sniHosts: [a.test]}]}]}", []string{"VirtualService v spec.http[0] NoEffect"}},
		{"tcp at HTTP", []string{plain, v + "tcp: [{}]}"}, tcp, []string{"VirtualService v spec.tcp[0] NoEffect"}},
		{"another port of TCP", []string{tcp, v + "tcp: [{match: [{port: 9001}]}]}"}, v + "tcp: [{}]}",
			[]string{"VirtualService v spec.tcp[0].match[0].port NoEffect"}},
		{"other hosts have a warning of their own", []string{secure, "VirtualService edge/v {hosts: [b.test], gateways: [edge/g], tls: [{}]}"}, "",
			[]string{"VirtualService v spec.hosts NotFound IST0132"}},
		{"a Gateway without protocols", []string{"Gateway edge/g {servers: [{hosts: ['*']}]}", v + "http: [{}], tls: [{}], tcp: [{}]}"}, "", nil},
	} {
		warns(t, c.name, c.records, c.mend, c.want)
	}
}
