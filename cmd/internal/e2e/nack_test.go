package e2e

import (
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"navarch.io/navarch/push/xds"
)

const badFilter = `
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: clumsy, namespace: shop}
spec:
  configPatches:
  - applyTo: CLUSTER
    match: {cluster: {service: db.shop.svc.cluster.local}}
    patch: {operation: MERGE, value: {connect_timeout: 1s}}
  - applyTo: CLUSTER
    match: {cluster: {service: web.shop.svc.cluster.local, portNumber: 80}}
    patch: {operation: MERGE, value: {connect_timeout: 2s}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec:
  host: web
  trafficPolicy: {loadBalancer: {simple: RANDOM}}
`

// ctl runs navarchctl and returns its output.
func ctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(binary(t, "navarchctl"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("navarchctl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// A proxy that refuses a cluster which an EnvoyFilter has changed: log, metric, /debug/problems, /debug/syncz and
// navarchctl name the EnvoyFilter and its patch, not only the cluster.
func TestRefusalNamesTheObject(t *testing.T) {
	parallel(t)
	const culprit = "outbound|80||web.shop.svc.cluster.local"
	dir := folder(t)
	write(t, dir, "filter.yaml", badFilter)
	d := start(t, "--config-dir", dir, "--data-dir", t.TempDir())
	eventually(t, patience, has(t, d, webCluster))
	refuse(t, d, "10.1.9.9", culprit)

	d.hasProblem(t, "Object:EnvoyFilter shop/clumsy", "Field:spec.configPatches[1]", "DestinationRule shop/web", culprit, "no such luck", "proxy sidecar~10.1.9.9~")
	page, err := get(d.http, "/debug/syncz")
	var syncz []struct {
		Refused []struct {
			Name    string
			Objects []string
		} `json:"cluster_refused"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(page), &syncz)
	}
	if err != nil || len(syncz) != 1 || len(syncz[0].Refused) != 1 || syncz[0].Refused[0].Name != culprit ||
		!slices.Equal(syncz[0].Refused[0].Objects, []string{"EnvoyFilter shop/clumsy spec.configPatches[1]", "DestinationRule shop/web", "Service shop/web"}) {
		t.Errorf("/debug/syncz: %v %s", err, page)
	}
	status := ctl(t, "proxy-status", "client-0", "--server", d.http)
	for _, word := range []string{"client-0.shop", "REFUSED", culprit, "EnvoyFilter shop/clumsy", "no such luck"} {
		if !strings.Contains(status, word) {
			t.Errorf("proxy-status does not say %q:\n%s", word, status)
		}
	}
	if strings.Count(d.log.String(), "no such luck") != 1 || !strings.Contains(d.log.String(), "EnvoyFilter shop/clumsy spec.configPatches[1]") {
		t.Errorf("the log should name the EnvoyFilter once:\n%s", d.log)
	}
	eventually(t, patience, func() error { return d.metric(`navarch_quarantined{type="cds"} 1`) })
	for _, line := range []string{`pilot_xds_cds_reject{err="nack"} 1`, `pilot_total_xds_rejects{type="cds"} 1`} {
		if err := d.metric(line); err != nil {
			t.Error(err)
		}
	}
}

// Three proxies refuse a cluster and disconnect. It is withheld from two healthy ones that join then, as problems,
// syncz, proxy-status, metrics and the log report. After the pause it is sent to one of them, and after its
// acknowledgement to the other.
func TestWithheldIsVisibleAndRetried(t *testing.T) {
	parallel(t)
	const culprit = "outbound|80||web.shop.svc.cluster.local"
	dir := folder(t)
	write(t, dir, "filter.yaml", badFilter)
	d := start(t, "--config-dir", dir, "--data-dir", t.TempDir(), "--withheld-retry-after", "1s")
	eventually(t, patience, has(t, d, webCluster))
	for _, ip := range []string{"10.1.9.1", "10.1.9.2", "10.1.9.3"} {
		refuse(t, d, ip, culprit)()
	}
	words := []string{"Object:EnvoyFilter shop/clumsy", "Field:spec.configPatches[1]", "DestinationRule shop/web", culprit, "no such luck", "view shop.",
		"is withheld from all proxies", "3 distinct identities refused it"}
	d.hasProblem(t, words...)

	sent, acknowledge := make(chan string, 2), make(chan struct{})
	for _, ip := range []string{"10.1.9.4", "10.1.9.5"} {
		take(t, d, ip, culprit, sent, acknowledge)
	}
	first := <-sent // and the other still lacks it
	d.hasProblem(t, words...)
	eventually(t, patience, func() error { return d.metric(`navarch_withheld_versions{type="cds"} 1`) })
	page, err := get(d.http, "/debug/syncz")
	var syncz []struct {
		Withheld []struct {
			Name      string
			RefusedBy int `json:"refused_by"`
			Objects   []string
		} `json:"cluster_withheld"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(page), &syncz)
	}
	if err != nil || len(syncz) != 2 || len(syncz[0].Withheld)+len(syncz[1].Withheld) != 1 {
		t.Fatalf("/debug/syncz: %v %s", err, page)
	}
	if w := append(syncz[0].Withheld, syncz[1].Withheld...)[0]; w.Name != culprit || w.RefusedBy != 3 || w.Objects[0] != "EnvoyFilter shop/clumsy spec.configPatches[1]" {
		t.Errorf("/debug/syncz: %+v", w)
	}
	if len(sent) > 0 {
		t.Errorf("it was sent to both at once")
	}
	close(acknowledge)
	if second := <-sent; second == first {
		t.Errorf("it was sent to %s twice", second)
	}
	eventually(t, patience, func() error { return d.metric(`navarch_withheld_versions{type="cds"} 0`) })
	for _, line := range []string{`navarch_quarantine_decisions_total{decision="withheld"} 1`, `navarch_quarantine_decisions_total{decision="acknowledged"} 1`,
		`navarch_quarantine_retries_total{result="acknowledged"} 1`} {
		if err := d.metric(line); err != nil {
			t.Error(err)
		}
	}
	if log := d.log.String(); strings.Count(log, "a version is withheld from all proxies of a view") != 1 || strings.Count(log, "no longer withheld") != 1 {
		t.Errorf("the log should say once that it is withheld, and once that it is not:\n%s", log)
	}
}

// take runs a proxy that acknowledges all clusters at once, except one that was missing at first. It reports that
// cluster, and acknowledges it when the channel is closed.
func take(t *testing.T, d *daemon, ip, culprit string, sent chan<- string, acknowledge <-chan struct{}) {
	t.Helper()
	stream, _ := openStream(t, d, ip)
	res, err := stream.Recv()
	if err != nil || carries(res, culprit) {
		t.Fatalf("%s: %v, %v", ip, err, res)
	}
	go func() {
		for err == nil {
			if carries(res, culprit) {
				sent <- ip
				<-acknowledge
			}
			if err = stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: res.TypeUrl, ResponseNonce: res.Nonce}); err == nil {
				res, err = stream.Recv()
			}
		}
	}()
}

// openStream subscribes to clusters as the proxy of an address; the stream ends with the test, or by the returned
// function.
func openStream(t *testing.T, d *daemon, ip string) (deltaStream, func()) {
	t.Helper()
	return openStreamAs(t.Context(), t, d.grpc, insecure.NewCredentials(), node("shop", "client", ip))
}

// openStreamAs works like openStream, for a proxy with credentials: those of the connection, or of the context.
func openStreamAs(ctx context.Context, t *testing.T, address string, creds credentials.TransportCredentials, n *corev3.Node) (deltaStream, func()) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(ctx, patience)
	t.Cleanup(cancel)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: xds.Cluster.URL()}); err != nil {
		t.Fatal(err)
	}
	return stream, cancel
}

type deltaStream = grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]

// carries reports whether a response has a resource.
func carries(res *discoveryv3.DeltaDiscoveryResponse, name string) bool {
	return slices.ContainsFunc(res.Resources, func(r *discoveryv3.Resource) bool { return r.Name == name })
}

// refuse opens a stream that accepts all clusters except one, which it refuses as Envoy does. The stream stays open,
// with all others acknowledged, until the test ends, or the returned function ends it.
func refuse(t *testing.T, d *daemon, ip, culprit string) func() {
	t.Helper()
	stream, leave := openStream(t, d, ip)
	refuseOn(t, stream, culprit)
	return leave
}

// refuseOn refuses one cluster on a stream, and acknowledges the rest.
func refuseOn(t *testing.T, stream deltaStream, culprit string) {
	t.Helper()
	for refused := false; ; {
		res, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		answer := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: res.TypeUrl, ResponseNonce: res.Nonce}
		bad := carries(res, culprit)
		if bad && refused {
			t.Fatal("what was refused was sent again")
		}
		if bad {
			answer.ErrorDetail = &status.Status{Code: 13, Message: "Error adding/updating cluster(s) " + culprit + ": no such luck"}
		}
		if err := stream.Send(answer); err != nil {
			t.Fatal(err)
		}
		if refused {
			return // the rest, in a response of its own
		}
		refused = refused || bad
	}
}
