package e2e

import (
	"crypto/tls"
	"fmt"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/structpb"

	sim "navarch.io/navarch/loadtest/proxy"
)

// Two Pods share a service account that may list Secrets; a Gateway makes one of them use a Secret, by its label. Their
// certificates distinguish them, because they were issued for tokens that are bound to Pods. A client with the other
// Pod's certificate gets no private key, whatever labels, type and names its node claims, and neither with a renewed
// certificate. A client with the first Pod's certificate gets the key, whatever its node claims.
func TestForgedLabelsByCertificate(t *testing.T) {
	parallel(t)
	data, dir := t.TempDir(), t.TempDir()
	write(t, dir, "services.yaml", services)
	write(t, dir, "secret.yaml", newSite(t, 101).secret(newSite(t, 103).cert))
	write(t, dir, "readers.yaml", readers("shared"))
	write(t, dir, "site.yaml", siteGateway+"  selector: {app: gateway}\n")
	for i, app := range []string{"gateway", "client"} {
		write(t, dir, app+".yaml", fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s-0, namespace: shop, labels: {app: %[1]s}}\n"+
			"spec: {serviceAccountName: shared, containers: [{name: app, image: app}]}\nstatus: {phase: Running, podIP: 10.1.7.%[2]d, conditions: [{type: Ready, status: 'True'}]}\n", app, i+1))
	}
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, d.ready)
	mesh := builtIn(t, d, data)
	as := func(pod, app string) *corev3.Node {
		n := router("shop", "shared", "10.1.7.1")
		n.Id = "router~10.1.7.1~" + pod + ".shop~shop.svc.cluster.local"
		n.Metadata.Fields["NAME"] = structpb.NewStringValue(pod)
		n.Metadata.Fields["LABELS"] = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"app": structpb.NewStringValue(app)}})
		return n
	}
	certificate := func(pod string) (first, renewed tls.Certificate) {
		t.Helper()
		first, _, err := mesh.bound(t.Context(), d.secure, sim.Identity{Namespace: "shop", ServiceAccount: "shared", Name: pod})
		if err == nil {
			renewed, _, err = mesh.renewed(t.Context(), d.secure, first)
		}
		if err != nil {
			t.Fatal(err)
		}
		return first, renewed
	}
	gateway, gatewayLater := certificate("gateway-0")
	client, clientLater := certificate("client-0")
	for name, c := range map[string]struct {
		by   tls.Certificate
		node *corev3.Node
		sent bool
	}{
		"the gateway":                               {gateway, as("gateway-0", "gateway"), true},
		"the gateway, by what it renewed":           {gatewayLater, as("gateway-0", "gateway"), true},
		"the gateway, whose node has other labels":  {gateway, as("gateway-0", "client"), true},
		"the other Pod":                             {client, as("client-0", "client"), false},
		"the other, with the gateway's label":       {client, as("client-0", "gateway"), false},
		"the other, with its name and label":        {client, as("gateway-0", "gateway"), false},
		"the other, with these, by what it renewed": {clientLater, as("gateway-0", "gateway"), false},
	} {
		sent, removed, err := secretsOf(t, credentials.NewTLS(mesh.client(c.by)), t.Context(), d.secure, c.node, "kubernetes://site")
		if err != nil || slices.Contains(sent, "kubernetes://site") != c.sent || len(removed) > 0 == c.sent {
			t.Errorf("%s: sent %q, removed %q, %v", name, sent, removed, err)
		}
	}
}
