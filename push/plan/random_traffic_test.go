//go:build !race

package plan

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	mrand "math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/push/walk"
	"navarch.io/navarch/store/model"
)

// traffic adds to a random mesh what decides on requests, and draws requests that meet it. It has a seed of its own.
type traffic struct {
	t   testing.TB
	r   *mrand.Rand
	key *ecdsa.PrivateKey // of the issuer "i"
}

func newTraffic(t testing.TB, seed uint64) *traffic {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &traffic{t: t, r: mrand.New(mrand.NewPCG(seed, 31)), key: key}
}

func (d *traffic) pick(from ...string) string { return from[d.r.IntN(len(from))] }

func (d *traffic) one(in int) bool { return d.r.IntN(in) == 0 }

// records returns the records that requests meet. They replace those of the random mesh with the same keys.
func (d *traffic) records() []model.Record {
	all := []model.Record{
		svc(d.t, "a/s0", "10.96.0.1", "http:80:HTTP", "web:8080:AUTO", "tcp:9000:TCP"),
		eps(d.t, "a/s0-1", "{name: http, number: 8080}, {name: web, number: 8081}, {name: tcp, number: 9000}", "10.1.0.1 v1", "10.1.0.2 v2"),
		svc(d.t, "b/s1", "10.96.0.2", "http:80:HTTP", "tcp:9000:TCP"), // without endpoints
		svc(d.t, "a/s2", "10.96.0.3", "http:80:HTTP"),
		rec(d.t, model.KindEndpoints, "a/s2-1", "{hosts: [s2.a.svc.cluster.local], ports: [{name: http, number: 8080}], "+
			"endpoints: [{address: 10.1.0.3, labels: {app: s2}, namespace: a, health: "+d.pick("HEALTH_NOT_READY", "HEALTH_DRAINING")+"}]}"),
		rec(d.t, model.KindDestinationRule, "a/subsets", "{host: s0.a.svc.cluster.local, exportTo: ['*'], subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}"),
		rec(d.t, model.KindGateway, "a/front", "{selector: {app: gw}, servers: ["+d.servers()+"]}"),
	}
	for i, hosts := range []string{"[s0.a.svc.cluster.local]", "[s2.a.svc.cluster.local, ext.example.com]", "['*.example.com']"} {
		all = append(all, rec(d.t, model.KindVirtualService, fmt.Sprintf("a/inside%d", i), "{hosts: "+hosts+", exportTo: ['*'], "+d.rules(false)+"}"))
	}
	for i, hosts := range []string{"[www.test]", "[shop.test]", "['*.test']"} {
		all = append(all, rec(d.t, model.KindVirtualService, fmt.Sprintf("a/bound%d", i), "{hosts: "+hosts+", gateways: [a/front], exportTo: ['*'], "+d.rules(true)+"}"))
	}
	if d.one(3) { // connections to its first listener are not redirected
		all = append(all, rec(d.t, model.KindSidecar, "a/own", "{workloadSelector: {labels: {app: web}}, egress: [{port: {number: 9080, name: http-own, "+
			"protocol: "+d.pick("HTTP", "HTTP2", "GRPC")+"}, bind: "+ownBind+", captureMode: NONE, hosts: ['*/*']}, {hosts: ['*/*']}]}"))
	}
	for i := range 1 + d.r.IntN(3) {
		all = append(all, d.policy(model.KindAuthorizationPolicy, fmt.Sprintf("p%d", i), d.authorization()))
	}
	for i, issuer := range []string{"i", "j"}[:d.r.IntN(3)] { // of two rules with one issuer Envoy would pick any
		all = append(all, d.policy(model.KindRequestAuthentication, fmt.Sprintf("t%d", i), d.authentication(issuer)))
	}
	return all
}

// servers returns the servers of a Gateway. Two of its servers share a port and differ in what they ask of clients, so
// that some requests are misdirected.
func (d *traffic) servers() string {
	server := func(port int, protocol, hosts, tls string) string {
		return fmt.Sprintf("{port: {number: %d, name: %s-%d, protocol: %s}, hosts: [%s]%s}, ", port, strings.ToLower(protocol), d.r.IntN(1e6), protocol, hosts, tls)
	}
	simple, mutual := ", tls: {mode: SIMPLE, credentialName: cert}", ", tls: {mode: MUTUAL, credentialName: cert}"
	return server(80, "HTTP", "'*.test'", d.pick("", "", ", tls: {httpsRedirect: true}")) +
		server(443, "HTTPS", "www.test", simple) + server(443, "HTTPS", "shop.test", d.pick(mutual, mutual, simple)) + server(443, "HTTPS", "'*.test'", simple) +
		server(9000, "TLS", "www.test", ", tls: {mode: PASSTHROUGH}") + server(8443, "HTTPS", "'*'", d.pick(mutual, ", tls: {mode: ISTIO_MUTUAL}"))
}

// rules returns the http rules of a VirtualService.
func (d *traffic) rules(bound bool) string {
	var all []string
	for range 1 + d.r.IntN(4) {
		rule := d.action()
		if !d.one(5) {
			rule = "match: [" + d.match(bound) + map[bool]string{true: ", " + d.match(bound)}[d.one(3)] + "], " + rule
		}
		all = append(all, "{"+rule+"}")
	}
	return "http: [" + strings.Join(all, ", ") + "]"
}

func (d *traffic) match(bound bool) string {
	uri := d.pick("uri: {prefix: /a}", "uri: {exact: /a/b}", "uri: {regex: '/c/[0-9]+'}", "uri: {prefix: /A}, ignoreUriCase: true", "uri: {prefix: /}", "uri: {exact: /}")
	more := []string{"", "", "", ", headers: {x-user: {exact: jason}}", ", headers: {x-user: {prefix: j}}", ", headers: {x-user: {regex: 'j.*n'}}", ", headers: {x-user: {}}",
		", withoutHeaders: {x-user: {exact: jason}}", ", withoutHeaders: {x-user: {}}", ", method: {exact: POST}", ", queryParams: {v: {exact: '2'}}", ", queryParams: {v: {regex: '[0-9]+'}}",
		", authority: {prefix: s}", ", scheme: {exact: https}"}
	if bound {
		more = append(more, ", headers: {'@request.auth.claims.sub': {exact: alice}}", ", withoutHeaders: {'@request.auth.claims.groups': {exact: staff}}", ", headers: {'@request.auth.claims.scope': {exact: read}}")
	}
	return "{" + uri + d.pick(more...) + "}"
}

// destinations that exist, that have no endpoint, and that have no cluster.
func (d *traffic) destination() string {
	return "destination: " + d.pick("{host: s0.a.svc.cluster.local, port: {number: 80}}", "{host: s0.a.svc.cluster.local, port: {number: 80}, subset: v1}",
		"{host: s0.a.svc.cluster.local, port: {number: 8080}, subset: v2}", "{host: s0.a.svc.cluster.local, port: {number: 80}, subset: gone}", "{host: s1.b.svc.cluster.local, port: {number: 80}}",
		"{host: s2.a.svc.cluster.local, port: {number: 80}}", "{host: gone.a.svc.cluster.local, port: {number: 80}}")
}

func (d *traffic) action() string {
	single := "route: [{" + d.destination() + "}]"
	good := "route: [{destination: {host: s0.a.svc.cluster.local, port: {number: 80}}}]"
	switch d.r.IntN(14) {
	case 0, 12:
		return "redirect: " + d.pick("{uri: /x, redirectCode: 302}", "{authority: other.test}", "{scheme: https, redirectCode: 308}")
	case 1:
		return fmt.Sprintf("directResponse: {status: %s}", d.pick("418", "200", "503"))
	case 2:
		return fmt.Sprintf("fault: {abort: {percentage: {value: %s}, %s}}, ", d.pick("100", "0"), d.pick("httpStatus: 555", "grpcStatus: UNAVAILABLE")) + single
	case 3, 4, 10, 11:
		return "mirror: {host: s0.a.svc.cluster.local, subset: v2, port: {number: 80}}, mirrorPercentage: {value: " + d.pick("100", "100", "0") + "}, " + good
	case 5:
		return "route: [{" + d.destination() + ", weight: 0}, {" + d.destination() + ", weight: 100}]"
	case 6:
		return "route: [{" + d.destination() + ", weight: 40}, {" + d.destination() + ", weight: 60}]"
	case 7:
		return "rewrite: {uri: /r, authority: rewritten}, " + single
	case 8:
		return "corsPolicy: {allowOrigins: [{exact: 'http://page.test'}], allowMethods: [GET]}, " + single
	case 9:
		return "headers: {request: {set: {x-user: other}, remove: [x-none]}}, " + good
	}
	return single
}

// authorization returns a policy whose rules have one to three conditions, so that each of them decides now and then.
func (d *traffic) authorization() proto.Message {
	p := &securityv1.AuthorizationPolicy{Action: securityv1.AuthorizationPolicy_Action(d.r.IntN(2))}
	for range 1 + d.r.IntN(2) {
		source, operation, rule := &securityv1.Source{}, &securityv1.Operation{}, &securityv1.Rule{}
		for range 1 + d.r.IntN(2)*d.r.IntN(3) {
			d.condition(source, operation, rule)
		}
		if proto.Size(source) > 0 {
			rule.From = []*securityv1.Rule_From{{Source: source}}
		}
		if proto.Size(operation) > 0 {
			rule.To = []*securityv1.Rule_To{{Operation: operation}}
		}
		p.Rules = append(p.Rules, rule)
	}
	return p
}

// condition adds a condition to a rule.
func (d *traffic) condition(from *securityv1.Source, to *securityv1.Operation, rule *securityv1.Rule) {
	one := func(values ...string) []string { return []string{d.pick(values...)} }
	when := func(key string, values ...string) {
		rule.When = append(rule.When, &securityv1.Condition{Key: key, Values: one(values...)})
	}
	all := []func(){
		func() { from.Principals = one("cluster.local/ns/a/sa/sa", "*/sa/other", "*") },
		func() { from.Namespaces = one("a", "b") },
		func() { from.NotNamespaces = one("b") },
		func() { from.IpBlocks = one("127.0.0.2", "127.0.0.2/31") },
		func() { from.RemoteIpBlocks = one("203.0.113.0/24", "10.2.0.0/16") },
		func() { from.NotRemoteIpBlocks = one("203.0.113.9") },
		func() { from.RequestPrincipals = one("i/alice", "*", "i/*") },
		func() { to.Methods = one("GET", "POST") },
		func() { to.NotMethods = one("DELETE") },
		func() { to.Paths = one("/a*", "/a/b", "*b", "/c/{*}", "/{**}/b") },
		func() { to.NotPaths = one("/a/b", "/{*}") },
		func() { to.Hosts = one("www.test", "*.test", "s0.a.svc.cluster.local") },
		func() { to.NotHosts = one("shop.test", "other") },
		func() { to.Ports = one("8080", "443") },
		func() { when("request.headers[x-user]", "jason", "j*", "*") },
		func() { when("request.headers[x-user]", "alice", "*") },
		func() { when("request.auth.claims[groups]", "staff", "s*") },
		func() { when("request.auth.claims[scope]", "read", "write") },
		func() { when("request.auth.claims[sub]", "alice", "*") },
		func() { when("request.auth.audiences", "x", "y") },
		func() { when("connection.sni", "www.test", "*.test") },
		func() { when("destination.port", "8080", "443") },
		func() { when("source.ip", "127.0.0.2") },
		func() { when("remote.ip", "203.0.113.9") },
	}
	all[d.r.IntN(len(all))]()
}

func (d *traffic) authentication(issuer string) proto.Message {
	encode := func(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
	point, err := d.key.PublicKey.Bytes()
	if err != nil {
		d.t.Fatal(err)
	}
	keys := aKey(encode(point[1:33]), encode(point[33:]))
	rule := &securityv1.JWTRule{Issuer: issuer, Jwks: keys, ForwardOriginalToken: d.one(2)}
	if d.one(6) {
		rule.Jwks = ""
	}
	if d.one(3) {
		rule.Audiences = []string{"x"}
	}
	switch d.r.IntN(5) {
	case 0:
		rule.Presence = securityv1.JWTRule_REQUIRED
	case 1:
		rule.FromHeaders = []*securityv1.JWTHeader{{Name: "x-token", Prefix: "T "}}
	case 2:
		rule.FromParams = []string{"token"}
	}
	if d.one(2) {
		rule.OutputClaimToHeaders = []*securityv1.ClaimToHeader{{Header: "x-user", Claim: "sub"}}
	}
	return &securityv1.RequestAuthentication{JwtRules: []*securityv1.JWTRule{rule}}
}

// policy returns the record of a policy of namespace a.
func (d *traffic) policy(kind model.Kind, name string, message proto.Message) model.Record {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		d.t.Fatal(err)
	}
	return rec(d.t, kind, "a/"+name, fmt.Sprintf("{selector: {%s}, istio: '%s'}", d.pick("", "app: s0", "app: gw"), base64.StdEncoding.EncodeToString(raw)))
}

// token returns a token that is valid, expired, of another issuer or audience, or no token at all.
func (d *traffic) token() string {
	if d.one(8) {
		return d.pick("abc", "a.b.c", "e30.e30.e30")
	}
	now := time.Now().Unix()
	claims := map[string]any{"iss": d.pick("i", "i", "i", "j", "k"), "sub": d.pick("alice", "bob"), "exp": now + 3600, "scope": "read write", "groups": []string{d.pick("staff", "guests"), "all"}}
	if d.one(6) {
		claims["exp"] = now - 3600
	}
	if d.one(2) {
		claims["aud"] = []string{d.pick("x", "y"), "z"}
	}
	raw, err := json.Marshal(claims)
	if err != nil {
		d.t.Fatal(err)
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","typ":"JWT"}`)) + "." + base64.RawURLEncoding.EncodeToString(raw)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, d.key, sum[:])
	if err != nil {
		d.t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// request draws the parts that all requests have.
func (d *traffic) request(host string) walk.Request {
	headers := map[string]string{":method": d.pick("GET", "GET", "POST", "DELETE", "OPTIONS"), ":authority": host, ":scheme": "http",
		":path": d.pick("/", "/a", "/a/b", "/A/b", "/c/12", "/c/x", "/x", "/x/../a/b", "/./a", "/%61/b", "//a", "/a%2Fb", "/a/b?v=2", "/x?v=x&v=2", "/a/..?token=abc")}
	if d.one(3) {
		headers["x-user"] = d.pick("jason", "jan", "bob")
	}
	if headers[":method"] == "OPTIONS" && !d.one(3) {
		headers["origin"], headers["access-control-request-method"] = d.pick("http://page.test", "http://other.test"), "GET"
	}
	if d.one(3) {
		headers["x-forwarded-for"] = d.pick("203.0.113.9", "203.0.113.9, 10.2.0.1", "198.51.100.1")
	}
	switch d.r.IntN(6) {
	case 0, 1:
		headers["authorization"] = "Bearer " + d.token()
	case 2:
		headers["x-token"] = "T " + d.token()
	case 3:
		headers[":path"] = d.pick("/a?token=", "/?token=") + d.token()
	}
	if d.one(5) {
		headers["content-type"] = d.pick("application/grpc", "application/grpc+proto", "application/grpc-web")
	}
	return walk.Request{Scheme: d.pick("http", "http", "h2c"), From: d.pick("10.2.0.1", "10.1.9.9", "203.0.113.9"), Peer: d.pick("127.0.0.2", "127.0.0.3", "127.0.0.4"), Time: time.Now(), Headers: headers}
}

// named sets the host that a client with TLS states.
func named(r walk.Request, scheme, name string) walk.Request {
	if scheme == "https" && r.Scheme == "h2c" {
		r.Scheme, r.Name, r.Headers[":scheme"] = "h2", name, scheme
		return r
	}
	r.Scheme, r.Name, r.Headers[":scheme"] = scheme, name, scheme
	return r
}

// ownBind is the address of the listener of a Sidecar whose connections are not redirected.
const ownBind = "127.0.0.1"

// outbound draws a request of an application.
func (d *traffic) outbound() walk.Request {
	host := d.pick("s0.a.svc.cluster.local", "s0.a.svc.cluster.local", "s0.a", "s0", "s0.a:80", "S0.A.svc.cluster.local", "s1.b.svc.cluster.local", "s2.a.svc.cluster.local",
		"ext.example.com", "www.example.com", "unknown.test", "10.96.0.1")
	r := d.request(host)
	r.Address, r.Port = d.pick("10.96.0.1", "10.96.0.1", "10.96.0.2", "10.96.0.3", "10.1.0.1", "240.0.0.9", "198.51.100.9"), []uint32{80, 80, 80, 80, 8080, 9000, 443, 81}[d.r.IntN(8)]
	if d.one(6) {
		r.Address, r.Port = ownBind, 9080
		return r
	}
	if d.one(8) {
		return named(r, "tls", d.pick("x.example.com", "ext.example.com", "unknown.test"))
	}
	return r
}

// inbound draws a request that arrives at a server.
func (d *traffic) inbound() walk.Request {
	r := d.request(d.pick("s0.a.svc.cluster.local", "s0.a.svc.cluster.local:80", "other"))
	r.Address, r.Port = "10.1.0.1", []uint32{8080, 8080, 8080, 8081, 9000, 80, 9999}[d.r.IntN(7)]
	if d.one(12) {
		return named(r, "tls", "s0.a")
	}
	if !d.one(3) {
		r.Identity = "spiffe://" + d.pick("cluster.local", "cluster.local", "cluster.local", "cluster.local", "elsewhere") + "/ns/" + d.pick("a", "b") + "/sa/" + d.pick("sa", "other")
	}
	return r
}

// publicClient is the name in the certificate of clients of gateways.
const publicClient = "spiffe://public/client"

// entering draws a request that arrives at a gateway.
func (d *traffic) entering() walk.Request {
	host := d.pick("www.test", "shop.test", "x.test", "www.test:443", "WWW.test", "elsewhere.example")
	r := d.request(host)
	r.Address, r.Port = "10.1.0.5", []uint32{80, 80, 443, 443, 443, 9000, 8443, 81}[d.r.IntN(8)]
	if r.Port == 80 && !d.one(10) {
		return r
	}
	if d.one(12) {
		r.Identity = "spiffe://cluster.local/ns/a/sa/sa"
		return r
	}
	if d.one(2) {
		r.Certificate = publicClient
	}
	return named(r, "https", d.pick("www.test", "www.test", "shop.test", strings.ToLower(strings.TrimSuffix(host, ":443"))))
}
