package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// ctlStream is a state-of-the-world stream of a client that speaks as istioctl does (istio pkg/adsc): it sends its node
// with its first request alone, and the printed time as the nonce of every request.
type ctlStream struct {
	t     *testing.T
	said  bool // the node
	inner grpc.ClientStream
}

func openCtl(ctx context.Context, t *testing.T, address string, creds credentials.TransportCredentials) (*ctlStream, error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	t.Cleanup(func() { cancel(); conn.Close() })
	inner, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, worldMethod, grpc.ForceCodec(bytesCodec{}))
	return &ctlStream{t: t, inner: inner}, err
}

// send writes the fields of a DiscoveryRequest in the order of their numbers: version_info 1, node 2, resource_names 3,
// type_url 4, response_nonce 5.
func (c *ctlStream) send(version, url, nonce string, names ...string) error {
	var raw []byte
	field := func(number protowire.Number, value string) {
		if value != "" {
			raw = protowire.AppendString(protowire.AppendTag(raw, number, protowire.BytesType), value)
		}
	}
	field(1, version)
	if !c.said {
		meta, err := structpb.NewStruct(map[string]any{"GENERATOR": "event", "SERVICE_ACCOUNT": "default", "NAMESPACE": "istio-system", "ISTIO_VERSION": "65536.65536.65536"})
		if err != nil {
			c.t.Fatal(err)
		}
		field(2, string(encode(c.t, &corev3.Node{Id: "sidecar~10.0.0.1~test-1.default~default.svc.cluster.local", Metadata: meta})))
		c.said = true
	}
	for _, name := range names {
		field(3, name)
	}
	field(4, url)
	field(5, nonce)
	return c.inner.SendMsg(raw)
}

// ask sends a request for names of a type, and returns the answer.
func (c *ctlStream) ask(url string, names ...string) (*discoveryv3.DiscoveryResponse, error) {
	err := c.send("", url, time.Now().String(), names...)
	if err != nil && !errors.Is(err, io.EOF) { // EOF: refused already, and RecvMsg says why
		return nil, err
	}
	var raw []byte
	if err := c.inner.RecvMsg(&raw); err != nil {
		return nil, err
	}
	res := &discoveryv3.DiscoveryResponse{}
	return res, proto.Unmarshal(raw, res)
}

// asked sends one request in istioctl's form and returns the answer.
func asked(ctx context.Context, t *testing.T, address string, creds credentials.TransportCredentials, url string, names ...string) (*discoveryv3.DiscoveryResponse, error) {
	t.Helper()
	c, err := openCtl(ctx, t, address, creds)
	if err != nil {
		return nil, err
	}
	return c.ask(url, names...)
}

// On one stream istioctl can request one page after the other, with acknowledgements, as some versions send them, and
// without.
func TestIstioctlAsksOnOneStream(t *testing.T) {
	parallel(t)
	data := t.TempDir()
	d := twoTenants(t, data)
	c, err := openCtl(bearer(t.Context(), token(t, data, "istio-system", "operator")), t, d.secure, rootsOnly(t, data))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		url, name, want string
		ack             bool
	}{
		{debugPage, "syncz", `"proxy": "p-0.shop"`, true},
		{debugPage, "syncz", `"cluster_acked"`, false},
		{debugPage, "list", "/debug/syncz", true},
		{debugPage, "config_dump?proxyID=p-0.pay", "ClustersConfigDump", false},
		{debugPage, "config_dump?proxyID=p-0.nowhere", "Proxy not connected to this Pilot instance. It may be connected to another instance.", true},
		{debugPage, "config_dump", "You must provide a proxyID in the query string", false},
		{debugPage, "nonesuch", "404 page not found", false},
		{debugPage, "pprof/heap", "404 page not found", false},
		{debugPage, "../debug/nonesuch", "404 page not found", true},
		{debugDump, "p-0.nowhere", "Proxy not connected to this Pilot instance. It may be connected to another instance.", true},
		{debugDump, "p-0.shop", "", false},
		{debugSync, "", "", true},
		{debugSync, "", "", false},
	} {
		var names []string
		if one.name != "" {
			names = append(names, one.name)
		}
		res, err := c.ask(one.url, names...)
		if err != nil {
			t.Fatalf("%s %s: %v", one.url, one.name, err)
		}
		switch {
		case one.want != "" && (len(res.Resources) != 1 || !strings.Contains(string(res.Resources[0].Value), one.want)):
			t.Errorf("%s %s: %v", one.url, one.name, res.Resources)
		case one.want == "" && len(res.Resources) < 3:
			t.Errorf("%s %s: %d resources", one.url, one.name, len(res.Resources))
		}
		if one.ack {
			if err := c.send(res.VersionInfo, one.url, res.Nonce); err != nil {
				t.Fatal(err)
			}
		}
	}
}

const debugPage, debugSync, debugDump = "istio.io/debug", "istio.io/debug/syncz", "istio.io/debug/config_dump"

// istioctl's requests on an ADS stream (istio.io/debug): callers of the system namespace see every proxy, and a
// tenant's caller its own proxies in all of the tenant's namespaces. A caller without an identity sees nothing.
func TestIstioctlAsks(t *testing.T) {
	parallel(t)
	data := t.TempDir()
	d := twoTenants(t, data)
	secure := rootsOnly(t, data)
	ask := func(who, url string, names ...string) (*discoveryv3.DiscoveryResponse, error) {
		return asked(bearer(t.Context(), token(t, data, who, "web")), t, d.secure, secure, url, names...)
	}
	const page, sync, dump = debugPage, debugSync, debugDump
	eventually(t, patience, func() error { // the tenants' labels reach the replica
		for who, want := range map[string][]string{"istio-system": {"other", "pay", "shop"}, "shop": {"pay", "shop"}, "other": {"other"}} {
			res, err := ask(who, sync)
			if err == nil {
				err = inSync(t, res, want)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", who, err)
			}
		}
		return nil
	})
	if res, err := ask("shop", page, "syncz"); err != nil || len(res.Resources) != 1 || res.Resources[0].TypeUrl != page ||
		!strings.Contains(string(res.Resources[0].Value), `"p-0.pay"`) || strings.Contains(string(res.Resources[0].Value), "other") {
		t.Errorf("the page syncz: %v %v", err, res)
	}
	if res, err := ask("shop", dump, "p-0.pay"); err != nil {
		t.Error(err)
	} else if clusters := (&adminv3.ClustersConfigDump{}); len(res.Resources) != 7 || res.Resources[1].UnmarshalTo(clusters) != nil || len(clusters.DynamicActiveClusters) == 0 {
		t.Errorf("a dump of %v", res.Resources)
	}
	// The answer is as for a proxy that does not exist.
	for url, name := range map[string]string{dump: "p-0.other", page: "config_dump?proxyID=p-0.other"} {
		if res, err := ask("shop", url, name); err != nil || len(res.Resources) != 1 || !strings.Contains(string(res.Resources[0].Value), "not connected to this replica") {
			t.Errorf("%s %s: %v %v", url, name, err, res)
		}
	}
	for _, one := range []struct {
		who, url, name string
		want           codes.Code
	}{
		{"shop", page, "snapshot", codes.PermissionDenied},
		{"shop", page, "../debug/snapshot", codes.PermissionDenied},
		{"istio-system", page, "snapshot", codes.OK},
		{"istio-system", dump, "", codes.InvalidArgument},
	} {
		var names []string
		if one.name != "" {
			names = append(names, one.name)
		}
		if _, err := ask(one.who, one.url, names...); status.Code(err) != one.want {
			t.Errorf("%s asks for %s: %v, want %v", one.who, one.name, err, one.want)
		}
	}
	for address, creds := range map[string]credentials.TransportCredentials{d.grpc: insecure.NewCredentials(), d.secure: secure} {
		if _, err := asked(t.Context(), t, address, creds, sync); status.Code(err) != codes.Unauthenticated {
			t.Errorf("without a credential, by %s: %v", creds.Info().SecurityProtocol, err)
		}
	}
	if got := d.value("navarch_proxies"); got != 3 {
		t.Errorf("%v proxies: who asks was counted as one", got)
	}
}

// rootsOnly returns TLS credentials of a caller that knows the mesh's roots and has no certificate.
func rootsOnly(t *testing.T, data string) credentials.TransportCredentials {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(data, "root-cert.pem"))
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatal("no root", err)
	}
	return credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "istiod.istio-system.svc"})
}

// inSync returns an error if the answer lacks a field of istiod's, for the proxies of these namespaces.
func inSync(t *testing.T, res *discoveryv3.DiscoveryResponse, want []string) error {
	t.Helper()
	if got := proxiesOf(t, res.Resources); !slices.Equal(got, want) {
		return fmt.Errorf("sees %v, want %v", got, want)
	}
	var by struct{ Component, ID string }
	if err := json.Unmarshal([]byte(res.ControlPlane.GetIdentifier()), &by); err != nil || by.Component != "istiod" || by.ID == "" {
		return fmt.Errorf("answered by %q", res.ControlPlane.GetIdentifier())
	}
	return nil
}

// proxiesOf returns the namespaces of the proxies in an answer, and checks that all their clusters are in sync.
func proxiesOf(t *testing.T, resources []*anypb.Any) (namespaces []string) {
	t.Helper()
	for _, r := range resources {
		one := &statusv3.ClientConfig{}
		if err := r.UnmarshalTo(one); err != nil {
			t.Fatal(err)
		}
		namespace := strings.TrimPrefix(one.Node.Id, "p-0.")
		if meta := one.Node.Metadata.AsMap(); meta["NAMESPACE"] != namespace || meta["CLUSTER_ID"] != "Kubernetes" {
			t.Errorf("metadata of %s: %v", one.Node.Id, meta)
		}
		namespaces = append(namespaces, namespace)
		if len(one.GenericXdsConfigs) != 5 || one.GenericXdsConfigs[0].ConfigStatus != statusv3.ConfigStatus_NOT_SENT ||
			one.GenericXdsConfigs[3].ConfigStatus == statusv3.ConfigStatus_NOT_SENT {
			t.Errorf("status of %v", one)
		}
	}
	slices.Sort(namespaces)
	return namespaces
}
