package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/deploy/demo/show"
	"navarch.io/navarch/deploy/demo/site"
	"navarch.io/navarch/store/programs"
)

// copied returns a folder with a copy of the demo's YAML, which the test may change.
func copied(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := copyYAML("../shop", dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The steps use these workloads and hosts; this test notices a change of the YAML that removes one.
func TestServicesOfTheDemo(t *testing.T) {
	w, err := readServices(copied(t))
	if err != nil {
		t.Fatal(err)
	}
	for app, want := range map[string]int{"web": 1, "catalog": 1, "reviews": 2, "ratings": 2, "istio-ingressgateway": 1} {
		if got := w.of(app, ""); len(got) != want {
			t.Errorf("%d Pods of %s, want %d", len(got), app, want)
		}
	}
	if got := slices.Sorted(maps.Keys(w.upstreams)); !slices.Equal(got, []string{"catalog", "quotes", "ratings", "reviews", "web"}) {
		t.Errorf("upstreams %v", got)
	}
	if len(w.outside) != 1 || w.outside["quotes"] == "" || w.upstreams["quotes"] != "http://quotes.example.com:8000" {
		t.Errorf("outside %v, quotes at %s", w.outside, w.upstreams["quotes"])
	}
}

// The gateway has no app. It serves the host and the Secret for which the demo makes a certificate, at its own address.
func TestGatewayOfTheDemo(t *testing.T) {
	m := &mesh{config: copied(t), dir: t.TempDir()}
	var err error
	if m.services, err = readServices(m.config); err != nil {
		t.Fatal(err)
	}
	for _, w := range m.services.workloads {
		if w.gateway != (w.name() == "istio-ingressgateway") {
			t.Errorf("%s is a gateway: %v", w.pod, w.gateway)
		}
		if w.gateway {
			m.gateway = w
		}
	}
	if err := m.openSite(); err != nil {
		t.Fatal(err)
	}
	var secret corev1.Secret
	if err := yaml.Unmarshal(must(os.ReadFile(filepath.Join(m.config, "gateway-certificate.yaml"))), &secret); err != nil {
		t.Fatal(err)
	}
	if secret.Namespace != "edge" || len(secret.Data["tls.key"]) == 0 {
		t.Errorf("Secret %s/%s with %d bytes of a key", secret.Namespace, secret.Name, len(secret.Data["tls.key"]))
	}
	text := string(must(os.ReadFile("../shop/gateway.yaml")))
	for _, want := range []string{"credentialName: " + secret.Name, "hosts: [shop/" + site.Host + "]", "bind: " + m.gateway.ip} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("gateway.yaml has no %q", want)
		}
	}
}

func TestEdits(t *testing.T) {
	dir := copied(t)
	if err := editObject(dir, "VirtualService", "reviews", func(o map[string]any) error { return setWeights(o, 30, 70) }); err != nil {
		t.Fatal(err)
	}
	w, err := readServices(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{config: dir}
	gone := w.of("ratings", "")[0].ip
	if err := m.editSlices(gone); err != nil {
		t.Fatal(err)
	}
	if _, err := sliceOf(dir, gone); err == nil {
		t.Errorf("%s is still in a slice", gone)
	}
	if err := m.editSlices(w.of("ratings", "")[1].ip); err == nil {
		t.Error("the last endpoint was taken away")
	}
	all := ""
	for _, f := range must(filepath.Glob(filepath.Join(dir, "*"))) {
		all += string(must(os.ReadFile(f)))
	}
	for _, want := range []string{"weight: 30", "weight: 70"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in the edited YAML", want)
		}
	}
	for _, not := range []string{"weight: 90", ".new"} {
		if strings.Contains(all, not) {
			t.Errorf("%q is in the edited YAML", not)
		}
	}
	if after, err := readServices(dir); err != nil || len(after.workloads) != len(w.workloads) || after.upstreams["reviews"] != "http://reviews.backend.svc.cluster.local:8000" {
		t.Errorf("after the edits: %+v, %v", after, err)
	}
	if err := editObject(dir, "VirtualService", "nobody", func(map[string]any) error { return nil }); err == nil {
		t.Error("an object that does not exist was edited")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Started programs end with their child processes, and a program that ends by itself is noticed.
func TestChildren(t *testing.T) {
	h := newChildren(t.TempDir())
	p, err := h.spawn("parent", nil, "sh", "-c", "sleep 600 & echo $!; wait")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	child := 0
	err = h.await(ctx, "child", startLimit, func(context.Context) error {
		b, err := os.ReadFile(p.log)
		if err == nil {
			_, err = fmt.Sscan(string(b), &child)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	h.stopAll()
	err = newChildren(t.TempDir()).await(ctx, "child's end", startLimit, func(context.Context) error {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		if err == nil && !strings.Contains(string(b), ") Z ") {
			return fmt.Errorf("child %d lives", child)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := h.dead(); err == nil || !strings.Contains(err.Error(), "parent ended") {
		t.Errorf("dead program: %v", err)
	}
	h.forget(p)
	if err := h.dead(); err != nil {
		t.Errorf("forgotten program: %v", err)
	}
}

// The kernel redirects an app's connections to a virtual address, and connections to a pod. Connections to 127.0.0.1
// are not redirected.
func TestNamespacesRedirect(t *testing.T) {
	if err := canIntercept(); err != nil {
		t.Skipf("real redirection needs root, ip and setpriv: %v", err)
	}
	agent := programs.For(t, "navarch-agent") // compiling it has limits of its own
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	spaces, down, err := wireUp(ctx, agent, []string{"10.77.0.1", "10.77.0.2"})
	if err != nil {
		t.Fatal(err)
	}
	defer down()
	for _, c := range []struct {
		what, listen, dial string
		in, from           netns
	}{
		{"outbound", "127.0.0.1:15001", "10.96.0.10:80", spaces[0], spaces[0]},
		{"inbound", "169.254.77.6:15006", "169.254.77.6:9080", spaces[1], netns{}}, // from the host, over its wire
		{"loopback", "127.0.0.1:9080", "127.0.0.1:9080", spaces[0], spaces[0]},
	} {
		var l net.Listener
		if err := c.in.do(func() (err error) { l, err = net.Listen("tcp4", c.listen); return err }); err != nil {
			t.Fatal(err)
		}
		answered := make(chan string, 1)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				answered <- err.Error()
				return
			}
			defer conn.Close()
			b := make([]byte, 2)
			n, _ := conn.Read(b)
			answered <- string(b[:n])
		}()
		dial := c.from.dial
		if c.from.name == "" {
			dial = new(net.Dialer).DialContext
		}
		conn, err := dial(ctx, "tcp", c.dial)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		conn.Write([]byte("hi"))
		conn.Close()
		if got := <-answered; got != "hi" {
			t.Errorf("%s: %q at %s", c.what, got, c.listen)
		}
		l.Close()
	}
}

// If this test was skipped, the summary of make test gives the reason.
func TestRedirection(t *testing.T) {
	if err := canIntercept(); err != nil {
		t.Skipf("real redirection needs root, ip and setpriv: %v", err)
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Dir(programs.For(t, "navarchd"))
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	rows, err := interceptDemo(ctx, root, bin)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Err != nil {
			t.Errorf("%s: %s: %v", r.Name, r.Measured, r.Err)
		}
	}
	if t.Failed() {
		show.Summary(os.Stdout, rows)
	}
}
