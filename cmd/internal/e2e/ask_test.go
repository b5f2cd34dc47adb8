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

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// asked is the answer to one question, asked as istioctl does.
func asked(ctx context.Context, t *testing.T, address string, creds credentials.TransportCredentials, url string, names ...string) (*discoveryv3.DiscoveryResponse, error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err == nil {
		err = stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "debug~0.0.0.0~istioctl~cluster.local"}, TypeUrl: url, ResourceNames: names})
	}
	if err != nil && !errors.Is(err, io.EOF) { // EOF: refused already, and Recv says why
		return nil, err
	}
	return stream.Recv()
}

// istioctl's questions on an ADS stream, istio.io/debug: callers of the system namespace see every proxy, a tenant's caller its
// own over all the tenant's namespaces, and nobody anything without an identity.
func TestIstioctlAsks(t *testing.T) {
	data := t.TempDir()
	d := twoTenants(t, data)
	secure := rootsOnly(t, data)
	ask := func(who, url string, names ...string) (*discoveryv3.DiscoveryResponse, error) {
		return asked(bearer(t.Context(), token(t, data, who, "web")), t, d.secure, secure, url, names...)
	}
	const page, sync, dump = "istio.io/debug", "istio.io/debug/syncz", "istio.io/debug/config_dump"
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
	} else if clusters := (&adminv3.ClustersConfigDump{}); len(res.Resources) != 4 || res.Resources[0].UnmarshalTo(clusters) != nil || len(clusters.DynamicActiveClusters) == 0 {
		t.Errorf("a dump of %v", res.Resources)
	}
	for _, one := range []struct {
		who, url, name string
		want           codes.Code
	}{
		{"shop", dump, "p-0.other", codes.NotFound}, // as if it were not there
		{"shop", page, "config_dump?proxyID=p-0.other", codes.NotFound},
		{"shop", page, "snapshot", codes.PermissionDenied},
		{"shop", page, "../debug/snapshot", codes.PermissionDenied},
		{"istio-system", page, "snapshot", codes.OK},
		{"istio-system", page, "nonesuch", codes.NotFound},
		{"istio-system", page, "pprof/heap", codes.NotFound},
		{"istio-system", dump, "", codes.NotFound},
	} {
		if _, err := ask(one.who, one.url, one.name); status.Code(err) != one.want {
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

// rootsOnly is TLS of a caller that knows the mesh's roots and has no certificate.
func rootsOnly(t *testing.T, data string) credentials.TransportCredentials {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(data, "root-cert.pem"))
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatal("no root", err)
	}
	return credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "istiod.istio-system.svc"})
}

// inSync says what an answer lacks that is istiod's, of the proxies of these namespaces.
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

// proxiesOf are the namespaces of the proxies of an answer, all of whose clusters are in sync.
func proxiesOf(t *testing.T, resources []*anypb.Any) (namespaces []string) {
	t.Helper()
	for _, r := range resources {
		one := &statusv3.ClientConfig{}
		if err := r.UnmarshalTo(one); err != nil {
			t.Fatal(err)
		}
		_, domain, _ := strings.Cut(one.Node.Id, "~p-0.")
		namespace, _, _ := strings.Cut(domain, "~")
		namespaces = append(namespaces, namespace)
		if len(one.GenericXdsConfigs) != 4 || one.GenericXdsConfigs[0].ConfigStatus != statusv3.ConfigStatus_NOT_SENT ||
			one.GenericXdsConfigs[3].ConfigStatus == statusv3.ConfigStatus_NOT_SENT {
			t.Errorf("status of %v", one)
		}
	}
	slices.Sort(namespaces)
	return namespaces
}
