//go:build kube

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/deploy/chart/files/injection"
	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/rights"
	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/kv/kvtest"
)

// podsEvery is the pace at which Pods are created while webhooks are disturbed: ten a second.
const podsEvery = 100 * time.Millisecond

// tagged is the second of two configurations: one is the default revision's, whose webhook is the first replica, the
// other a tag's, whose is the second.
const tagged = "prod"

// injected is the load: Pods that are created through both configurations, and handshakes as a further API server would
// make them.
type injected struct {
	api      *apiserver.Client
	replicas map[string]*daemon // by the name of the configuration

	mu      sync.Mutex
	pods    int
	wrong   []string
	issuers map[string]map[string]bool // of leaves that were presented to handshakes, by configuration
}

func (l *injected) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// configure writes the ConfigMap and both configurations, with addresses instead of a Service, because there is no
// network of Pods here.
func (l *injected) configure(t *testing.T, c *controlplane.ControlPlane, first, second *daemon) {
	t.Helper()
	settings, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]string{"name": "istio-sidecar-injector", "namespace": "istio-system"},
		"data": map[string]string{"config": injection.Config(), "values": injection.Values()}})
	if err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, string(settings), "apply", "--server-side", "-f", "-")
	for _, of := range []struct {
		inject.Webhooks
		*daemon
	}{{inject.Webhooks{Namespace: "istio-system"}, first}, {inject.Webhooks{Namespace: "istio-system", Tag: tagged}, second}} {
		configuration := of.Configuration()
		for i := range configuration.Webhooks {
			url := "https://" + of.https + "/inject"
			configuration.Webhooks[i].ClientConfig.Service, configuration.Webhooks[i].ClientConfig.URL = nil, &url
		}
		text, err := json.Marshal(configuration)
		if err != nil {
			t.Fatal(err)
		}
		c.Kubectl(t, string(text), "apply", "-f", "-")
		l.replicas[configuration.Name] = of.daemon
	}
	c.Kubectl(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {istio-injection: enabled}}}\n---\n"+
		"{apiVersion: v1, kind: Namespace, metadata: {name: tagged, labels: {istio.io/rev: "+tagged+"}}}", "apply", "-f", "-")
}

// create creates a Pod. The error is the refusal, or says that it has no proxy.
func (l *injected) create(ctx context.Context, namespace, name string) error {
	pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "labels": map[string]string{"app": "web"}},
		"spec": map[string]any{"serviceAccountName": "web", "containers": []any{map[string]any{"name": "app", "image": "web"}}}}
	var made corev1.Pod
	if err := l.api.Do(ctx, "POST", "/api/v1/namespaces/"+namespace+"/pods", pod, &made); err != nil {
		return err
	}
	for _, c := range append(made.Spec.InitContainers, made.Spec.Containers...) {
		if c.Name == "istio-proxy" {
			return nil
		}
	}
	return errors.New("it has no proxy")
}

// run creates Pods, and makes handshakes, until the context ends.
func (l *injected) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for name, d := range l.replicas {
		all.Go(func() {
			for pace := time.NewTicker(podsEvery / 4); ctx.Err() == nil; <-pace.C {
				if err := l.believed(ctx, name, d); err != nil && ctx.Err() == nil {
					l.fail("%s at %s: %v", name, time.Now().Format(time.StampMilli), err)
				}
			}
		})
	}
	tick := time.NewTicker(podsEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		all.Go(func() {
			namespace := []string{"shop", "tagged"}[i%2]
			if err := l.create(context.WithoutCancel(ctx), namespace, fmt.Sprint("web-", i)); err != nil {
				l.fail("Pod %s/web-%d at %s: %v", namespace, i, time.Now().Format(time.StampMilli), err)
			}
			l.mu.Lock()
			l.pods++
			l.mu.Unlock()
		})
	}
}

// believed performs a handshake as an API server would that has just read a configuration. A failure counts only if the
// configuration is unchanged after it.
func (l *injected) believed(ctx context.Context, name string, d *daemon) error {
	before, err := l.bundle(ctx, name)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(before))
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}).DialContext(ctx, "tcp", d.https)
	if err != nil {
		if after, failed := l.bundle(ctx, name); failed != nil || after != before {
			return failed
		}
		return err
	}
	leaf := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
	l.mu.Lock()
	if l.issuers[name] == nil {
		l.issuers[name] = map[string]bool{}
	}
	l.issuers[name][string(leaf.AuthorityKeyId)] = true
	l.mu.Unlock()
	return conn.Close()
}

func (l *injected) bundle(ctx context.Context, name string) (string, error) {
	var c admissionregistrationv1.MutatingWebhookConfiguration
	err := l.api.Do(ctx, "GET", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/"+name, nil, &c)
	if err != nil || len(c.Webhooks) == 0 {
		return "", errors.Join(err, fmt.Errorf("%d webhooks", len(c.Webhooks)))
	}
	return string(c.Webhooks[0].ClientConfig.CABundle), nil
}

// presented returns a check that certificates of that many issuers were presented for each configuration.
func (l *injected) presented(want int) func() error {
	return func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for name := range l.replicas {
			if n := len(l.issuers[name]); n < want {
				return fmt.Errorf("for %s certificates of %d issuers were presented, want %d", name, n, want)
			}
		}
		return nil
	}
}

// made waits until the given number of further Pods were created.
func (l *injected) made(t *testing.T, more int) {
	t.Helper()
	l.mu.Lock()
	until := l.pods + more
	l.mu.Unlock()
	eventually(t, patience, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.pods < until {
			return fmt.Errorf("%d Pods of %d", l.pods, until)
		}
		return nil
	})
}

// Ten Pods per second are created through the webhooks of two replicas, one for the default revision and one for a tag,
// while the root of the mesh is rotated, again after the leader was killed, and while etcd is away. No Pod is refused
// or left without a proxy. Each client trusts the replica's certificate by the configuration of that moment.
func TestKubePodsWhileRootsRotate(t *testing.T) {
	c := controlplane.Start(t, controlplane.Options{})
	kubeconfig, etcd, kek := rights.Documented(t, c), kvtest.Start(t), "--kek=file:"+filepath.Join(t.TempDir(), "kek")
	c.Kubectl(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: tags}, rules: [{apiGroups: [admissionregistration.k8s.io],
  resources: [mutatingwebhookconfigurations], resourceNames: [istio-revision-tag-`+tagged+`], verbs: [get, update]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: tags}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tags},
  subjects: [{kind: ServiceAccount, namespace: istio-system, name: navarchd}]}`, "apply", "-f", "-")
	store := "--etcd-endpoints=" + etcd.Endpoint()
	all := []string{"--kubeconfig", kubeconfig, store, kek}
	ingest := append(all, "--roles=ingest", "--leader-lease=2s")
	first := startNamed(t, "ingest-1", ingest...)
	eventually(t, patience, first.leading)
	second := startNamed(t, "ingest-2", ingest...)
	api, err := apiserver.Of(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	l := &injected{api: api, replicas: map[string]*daemon{}, issuers: map[string]map[string]bool{}}
	serving := append(all, "--roles=xds,ca,admit")
	l.configure(t, c, startNamed(t, "replica-1", serving...), startNamed(t, "replica-2", serving...))
	for _, d := range l.replicas {
		eventually(t, patience, d.ready)
	}
	n := 0
	for _, namespace := range []string{"shop", "tagged"} { // the API server needs a moment to know of webhooks
		eventually(t, patience, func() error {
			n++
			return l.create(t.Context(), namespace, fmt.Sprint("early-", n))
		})
	}

	ctx, end := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer end()
	load.Go(func() { l.run(ctx) })
	eventually(t, patience, l.presented(1))
	ctl(t, "ca", "rotate", store, kek)
	eventually(t, patience, l.presented(2))
	first.kill()
	eventually(t, patience, second.leading)
	ctl(t, "ca", "rotate", store, kek)
	eventually(t, patience, l.presented(3))
	etcd.Stop()
	l.made(t, 50)
	etcd.Restart(etcd.Dir())
	for _, d := range l.replicas {
		eventually(t, patience, d.ready)
	}
	l.made(t, 10)
	end()
	load.Wait()
	t.Logf("%d Pods were created", l.pods)
	if len(l.wrong) > 0 {
		t.Errorf("%d times, at first:\n%s", len(l.wrong), strings.Join(l.wrong[:min(5, len(l.wrong))], "\n"))
	}
}
