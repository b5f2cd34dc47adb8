// Package cluster runs a real Kubernetes control plane for load runs, and writes the objects of a synthetic mesh to it.
package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/deploy/chart/files/injection"
	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/loadtest/gauge"
)

// Cluster is one control plane: etcd, and an API server with Istio's kinds. It has no admission plugins and no
// controllers.
type Cluster struct {
	plane *controlplane.ControlPlane
	api   dynamic.Interface
}

// Start starts a control plane in an empty folder, with the programs of `make kube-tools`. Errors: a program is missing
// or does not become ready, or Istio's kinds cannot be defined; nothing runs then.
func Start(dir string) (*Cluster, error) {
	return start(controlplane.Options{Istio: true}, dir)
}

// Beside starts the control plane of another cluster in an empty folder: an API server without Istio's kinds, on the
// etcd of c. It must be closed before c. Errors are those of Start.
func (c *Cluster) Beside(name, dir string) (*Cluster, error) {
	return start(controlplane.Options{Etcd: c.plane.Etcd(), Prefix: "/" + name}, dir)
}

func start(o controlplane.Options, dir string) (*Cluster, error) {
	plane, err := controlplane.Run(o, dir)
	if err != nil {
		if plane != nil {
			plane.Close()
		}
		return nil, err
	}
	config := plane.Config()
	api, err := dynamic.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		plane.Close()
		return nil, err
	}
	return &Cluster{plane, api}, nil
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.plane.Kubeconfig() }

// Etcd returns the address of the control plane's etcd, which may also hold navarchd's keys.
func (c *Cluster) Etcd() string { return c.plane.Etcd() }

// Close ends all processes of the control plane.
func (c *Cluster) Close() { c.plane.Close() }

// Injection writes the chart's ConfigMap istio-sidecar-injector. The error is that of Put.
func (c *Cluster) Injection(ctx context.Context) error {
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]string{"name": "istio-sidecar-injector", "namespace": "istio-system"},
		"data":     map[string]string{"config": injection.Config(), "values": injection.Values()}})
	if err != nil {
		return err
	}
	_, err = c.Put(ctx, maps.All(map[string][]byte{"injection": text}))
	return err
}

// writers is the number of concurrent requests while many objects are written.
const writers = 32

// Fill creates the objects of all files in the order of their dependencies: cluster-scoped objects first. An existing
// object is left unchanged. Errors: that of Objects, before anything is created, or one that names all objects that the
// API server refused.
func (c *Cluster) Fill(ctx context.Context, files iter.Seq2[string, []byte]) error {
	objects, err := Objects(files)
	if err != nil {
		return err
	}
	var first, then []*unstructured.Unstructured
	for _, o := range objects {
		if o.GetNamespace() == "" {
			first = append(first, o)
		} else {
			then = append(then, o)
		}
	}
	for _, all := range [][]*unstructured.Unstructured{first, then} {
		if err := c.each(all, func(o *unstructured.Unstructured) error { return c.create(ctx, o) }); err != nil {
			return err
		}
	}
	return nil
}

// Objects parses the objects of a mesh's files, in their order. The error names a file that is not YAML, or that
// contains an object without a kind.
func Objects(files iter.Seq2[string, []byte]) (objects []*unstructured.Unstructured, err error) {
	for path, data := range files {
		all, err := parse(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		objects = append(objects, all...)
	}
	return objects, nil
}

// each calls do for all objects, `writers` at once, and joins their errors with the objects' names.
func (c *Cluster) each(all []*unstructured.Unstructured, do func(*unstructured.Unstructured) error) error {
	queue, wg := make(chan *unstructured.Unstructured), sync.WaitGroup{}
	var mu sync.Mutex
	var failed error
	for range writers {
		wg.Go(func() {
			for o := range queue {
				if err := do(o); err != nil {
					mu.Lock()
					failed = errors.Join(failed, fmt.Errorf("%s %s/%s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err))
					mu.Unlock()
				}
			}
		})
	}
	for _, o := range all {
		queue <- o
	}
	close(queue)
	wg.Wait()
	return failed
}

// Put writes the objects of files one after the other, as `kubectl apply -f` does. first is the time of the API
// server's answer for the first object. The error is that of Objects, or the API server's with the object's name; the
// objects before that one are written.
func (c *Cluster) Put(ctx context.Context, files iter.Seq2[string, []byte]) (first time.Time, err error) {
	for path, data := range files {
		all, err := parse(data)
		if err != nil {
			return first, fmt.Errorf("%s: %w", path, err)
		}
		for _, o := range all {
			if _, err := c.of(o).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "navarch-load", Force: true}); err != nil {
				return first, fmt.Errorf("%s %s/%s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
			}
			if first.IsZero() {
				first = time.Now()
			}
		}
	}
	return first, nil
}

// Roll replaces n Pods as a rolling deploy does: it creates a Pod with the same address, then deletes the old one.
// changed is the number of Pod changes that watchers receive. Errors: the Pods cannot be listed, or the names of all
// Pods that could not be replaced.
func (c *Cluster) Roll(ctx context.Context, n int) (changed int, err error) {
	list, err := c.api.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).List(ctx, metav1.ListOptions{Limit: int64(n)})
	if err != nil {
		return 0, err
	}
	zero := int64(0)
	err = c.each(pointers(list.Items), func(o *unstructured.Unstructured) error {
		next := o.DeepCopy()
		next.SetName(o.GetName() + "-r")
		next.SetUID("")
		next.SetResourceVersion("")
		next.SetManagedFields(nil)
		if err := c.create(ctx, next); err != nil {
			return err
		}
		return c.of(o).Delete(ctx, o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &zero})
	})
	return 3 * len(list.Items), err // created, its status written, the old one deleted
}

func pointers(items []unstructured.Unstructured) (all []*unstructured.Unstructured) {
	for i := range items {
		all = append(all, &items[i])
	}
	return all
}

// Try sends a dry-run creation, so the API server calls its webhooks and stores nothing. It returns the resulting
// object. The error is the API server's.
func (c *Cluster) Try(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return c.of(o).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// create creates one object and then writes its status, which the API server ignores at creation.
func (c *Cluster) create(ctx context.Context, o *unstructured.Unstructured) error {
	status, has := o.Object["status"]
	made, err := c.of(o).Create(ctx, o, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil || !has:
		return err
	}
	made.Object["status"] = status
	_, err = c.of(o).UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}

// of returns the client for an object's kind and namespace.
func (c *Cluster) of(o *unstructured.Unstructured) dynamic.ResourceInterface {
	gvk := o.GroupVersionKind()
	name := strings.ToLower(gvk.Kind) + "s"
	switch gvk.Kind {
	case "ServiceEntry", "WorkloadEntry", "AuthorizationPolicy":
		name = strings.TrimSuffix(strings.ToLower(gvk.Kind), "y") + "ies"
	}
	return c.api.Resource(gvk.GroupVersion().WithResource(name)).Namespace(o.GetNamespace())
}

// parse parses the objects of one file.
func parse(data []byte) (all []*unstructured.Unstructured, err error) {
	for doc := range bytes.SplitSeq(data, []byte("---\n")) {
		o := map[string]any{}
		if err := yaml.Unmarshal(doc, &o); err != nil {
			return nil, err
		}
		if len(o) == 0 {
			continue
		}
		u := &unstructured.Unstructured{Object: o}
		if u.GetKind() == "" {
			return nil, errors.New("an object has no kind")
		}
		if u.GetKind() == "Service" { // the API server assigns one: addresses of the mesh may be taken
			unstructured.RemoveNestedField(o, "spec", "clusterIP")
		}
		all = append(all, u)
	}
	return all, nil
}

// StatusWrites returns the number of status updates, by any client, since the API server started, from its own metrics.
// Errors are those of gauge.Scrape.
func (c *Cluster) StatusWrites(ctx context.Context) (n float64, err error) {
	page, err := c.metrics(ctx)
	for name, value := range page {
		written := strings.Contains(name, `verb="PUT"`) || strings.Contains(name, `verb="PATCH"`) || strings.Contains(name, `verb="APPLY"`)
		if strings.HasPrefix(name, "apiserver_request_total{") && strings.Contains(name, `subresource="status"`) && written {
			n += value
		}
	}
	return n, err
}

// Reviews returns the seconds that the API server waited for answers of webhooks that let an object pass, since it
// started: its own measure, of which the bounds are 5, 25, 100 and 500 ms and more. Errors are those of gauge.Scrape.
func (c *Cluster) Reviews(ctx context.Context) (gauge.Buckets, error) {
	page, err := c.metrics(ctx)
	return page.Buckets("apiserver_admission_webhook_admission_duration_seconds", `rejected="false"`), err
}

// metrics reads the API server's metrics page.
func (c *Cluster) metrics(ctx context.Context) (gauge.Samples, error) {
	client, err := rest.HTTPClientFor(c.plane.Config())
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	return gauge.Scrape(ctx, client, "https://"+c.plane.Address()+"/metrics")
}
