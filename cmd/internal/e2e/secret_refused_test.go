package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// router returns the node of a gateway.
func router(namespace, workload, ip string) *corev3.Node {
	n := node(namespace, workload, ip)
	n.Id = strings.Replace(n.Id, "sidecar~", "router~", 1)
	return n
}

// refusedSecrets checks that a client without the right to a Secret immediately receives its absence, whatever the
// client claims. Of the four requested Secrets, the last one contains certificates of an authority, which all clients
// of the namespace may have.
func refusedSecrets(t *testing.T, d *daemon, data string) {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(data, "root-cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	secure := credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "istiod.istio-system.svc"})
	names := []string{"kubernetes-gateway://shop/site", "kubernetes://shop/site", "kubernetes://site", "kubernetes://site-cacert"}
	as := func(namespace, account string) context.Context {
		return bearer(t.Context(), token(t, data, namespace, account))
	}
	for name, c := range map[string]struct {
		creds   credentials.TransportCredentials
		ctx     context.Context
		address string
		node    *corev3.Node
		sent    int
	}{
		"the gateway's service account":    {secure, as("shop", "gateway"), d.secure, router("shop", "gateway", "10.1.7.7"), 4},
		"a gateway by its own word":        {secure, as("shop", "other"), d.secure, router("shop", "other", "10.1.7.1"), 1},
		"plain text":                       {insecure.NewCredentials(), t.Context(), d.grpc, router("shop", "gateway", "10.1.7.2"), 0},
		"a gateway of another namespace":   {secure, as("bank", "gateway"), d.secure, router("bank", "gateway", "10.1.7.3"), 0},
		"a sidecar of the namespace":       {secure, as("shop", "client"), d.secure, node("shop", "client", "10.1.7.4"), 1},
		"a sidecar on plain text":          {insecure.NewCredentials(), t.Context(), d.grpc, node("shop", "client", "10.1.7.5"), 0},
		"a gateway that claims the wanted": {secure, as("bank", "gateway"), d.secure, router("shop", "gateway", "10.1.7.6"), -1},
	} {
		sent, removed, err := secretsOf(t, c.creds, c.ctx, c.address, c.node, names...)
		slices.Sort(sent)
		switch {
		case c.sent < 0 && err == nil:
			t.Errorf("%s was let in", name)
		case c.sent >= 0 && (err != nil || len(sent) != c.sent || len(removed) != len(names)-c.sent):
			t.Errorf("%s: sent %q, removed %q, %v", name, sent, removed, err)
		}
	}
	if log := d.log.String(); !strings.Contains(log, "kubernetes-gateway://shop/site") || !strings.Contains(log, " may not list Secrets: no RoleBinding of namespace shop") {
		t.Error("the log does not name what was refused, and why")
	}
}

// nowhere checks that neither the data directory nor a page nor a log contains a private key in any form.
func nowhere(t *testing.T, d *daemon, data string, agent func() (agentPage, error), sites ...site) {
	t.Helper()
	text := shown(t, d, data, "gateway-0.shop", "kubernetes://site", "records/Secret//files/shop/site")
	if dump := text["/debug/config_dump?proxyID=gateway-0.shop"]; !strings.Contains(dump, "kubernetes://site") || !strings.Contains(dump, "[redacted]") {
		t.Errorf("the dump does not show what the gateway has: %s", dump)
	}
	page, err := agent()
	text["the agent's page"] = fmt.Sprintf("%+v %v", page, err)
	for where, content := range text {
		if strings.Contains(content, "PRIVATE KEY") {
			t.Errorf("%s holds a private key in PEM", where)
		}
		for _, s := range sites {
			for form, part := range s.forms {
				if strings.Contains(content, part) {
					t.Errorf("%s shows a private key as %s", where, form)
				}
			}
		}
	}
}

// gatewayAsked asks about the gateway as istioctl does (proxy-status, proxy-config).
func gatewayAsked(t *testing.T, d *daemon, data string) {
	t.Helper()
	ctl, err := openCtl(bearer(t.Context(), token(t, data, "istio-system", "operator")), t, d.secure, rootsOnly(t, data))
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []struct {
		url, name string
		want      []string
	}{
		{debugPage, "syncz", []string{`"proxy": "gateway-0.shop"`, `"proxy_type": "router"`, `"listener_acked"`, `"secret_acked"`}},
		{debugPage, "config_dump?proxyID=gateway-0.shop", []string{"router~", "ListenersConfigDump", "RoutesConfigDump", "SecretsConfigDump", "kubernetes://site"}},
		{debugSync, "", []string{"gateway-0.shop"}},
		{debugDump, "gateway-0.shop", []string{"envoy.admin.v3.SecretsConfigDump", "kubernetes://site"}},
	} {
		var names []string
		if of.name != "" {
			names = append(names, of.name)
		}
		res, err := ctl.ask(of.url, names...)
		if err != nil {
			t.Fatalf("%s %s: %v", of.url, of.name, err)
		}
		var text strings.Builder
		for _, r := range res.Resources {
			text.WriteString(r.TypeUrl + " " + string(r.Value))
		}
		for _, want := range of.want {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%s %s: no %s in %.2000s", of.url, of.name, want, text.String())
			}
		}
		if strings.Contains(text.String(), "PRIVATE KEY") {
			t.Errorf("%s %s has a private key", of.url, of.name)
		}
	}
}

// shown returns the contents of navarchd's log, of its pages (also about a proxy and one of its resources), and of the
// files in its data directory, by their location. One of the files must contain the key of a record.
func shown(t *testing.T, d *daemon, data, proxy, resource, record string) map[string]string {
	t.Helper()
	text := map[string]string{"the log": d.log.String()}
	list, err := get(d.http, "/debug/list")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(list) {
		path := strings.Fields(line)[0]
		for _, query := range []string{"", "?proxyID=" + proxy, "?proxyID=" + proxy + "&resource=" + resource} {
			if page, err := get(d.http, path+query); err == nil && !strings.Contains(path, "pprof") {
				text[path+query] = page
			}
		}
	}
	seen := false
	err = filepath.WalkDir(data, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || entry.Name() == "kek.key" || entry.Name() == "token-issuer.key" {
			return err
		}
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		text[path] = string(raw)
		seen = seen || strings.Contains(string(raw), record)
		return err
	})
	if err != nil || !seen {
		t.Fatalf("the data directory was not looked at: %v", err)
	}
	return text
}

// explained checks that navarchctl reports the state of a Secret of the gateway.
func explained(t *testing.T, d *daemon, name string, lines ...string) {
	t.Helper()
	out, err := exec.Command(binary(t, "navarchctl"), "explain", "--server", d.http, "--proxy", "gateway-0.shop", name).CombinedOutput()
	if err != nil {
		t.Errorf("explain %s: %v\n%s", name, err, out)
	}
	says(t, string(out), lines...)
}
