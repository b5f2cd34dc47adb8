// Package cluster is a real Kubernetes control plane for load runs, and what a folder of a mesh has as its objects.
//
// Owns: the control plane's processes, until Close.  Reads: files of loadtest/mesh.  Never: a control plane that it did not start; kubelets:
// it writes the status of Pods, and EndpointSlices, itself.
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

// Cluster is one control plane: etcd and an API server with Istio's kinds; no admission, no controllers.
type Cluster struct {
	plane *controlplane.ControlPlane
	api   dynamic.Interface
}

// Start starts a control plane in an empty folder. Its programs are those of `make kube-tools`. An error: one of them is missing or does not become
// ready, or Istio's kinds cannot be defined; nothing runs then.
func Start(dir string) (*Cluster, error) {
	return start(controlplane.Options{Istio: true}, dir)
}

// Beside starts the control plane of another cluster in an empty folder: an API server without Istio's kinds, on the etcd of this one. It has to be closed
// before this one is. Errors are those of Start.
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

// Kubeconfig is the path of the administrator's.
func (c *Cluster) Kubeconfig() string { return c.plane.Kubeconfig() }

// Etcd is the address of the control plane's etcd, for navarchd's own keys too.
func (c *Cluster) Etcd() string { return c.plane.Etcd() }

// Close ends all processes.
func (c *Cluster) Close() { c.plane.Close() }

// Injection writes the ConfigMap istio-sidecar-injector, as the chart has it. The error is that of Put.
func (c *Cluster) Injection(ctx context.Context) error {
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]string{"name": "istio-sidecar-injector", "namespace": "istio-system"},
		"data": map[string]string{"config": injection.Config(), "values": injection.Values()}})
	if err != nil {
		return err
	}
	_, err = c.Put(ctx, maps.All(map[string][]byte{"injection": text}))
	return err
}

// writers is how many requests go at once while much is written.
const writers = 32

// Fill makes the objects of all files, in order of what they need of one another: what has no namespace first. Errors: that of
// Objects, before anything is made, or those of all objects that the API server refused, by name; one that is there already is none.
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

// Objects are those of a mesh's files, in their order. An error names the file that is not YAML, or has an object without a kind.
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

// Put writes the objects of files one after the other, as `kubectl apply -f` does, and returns when the API server answered for the first.
// An error: that of Objects for a file, or the API server's for an object, by name; those before it are written.
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

// Roll replaces so many Pods, as rolling deploys do: another one comes with the same address, and the old one goes. changed is how many changes of
// Pods the API server tells of. Errors: the Pods cannot be listed, or those of all that could not be replaced, by name.
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
	return 3 * len(list.Items), err // made, its status, the old one deleted
}

func pointers(items []unstructured.Unstructured) (all []*unstructured.Unstructured) {
	for i := range items {
		all = append(all, &items[i])
	}
	return all
}

// Try has the API server do all that it does to make an object, its webhooks included, but keep it. It gives the object as it would be. The error is the
// API server's.
func (c *Cluster) Try(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return c.of(o).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// create makes one object, and writes its status, which the API server takes for itself.
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

// of is where objects of a kind are.
func (c *Cluster) of(o *unstructured.Unstructured) dynamic.ResourceInterface {
	gvk := o.GroupVersionKind()
	name := strings.ToLower(gvk.Kind) + "s"
	switch gvk.Kind {
	case "ServiceEntry", "WorkloadEntry", "AuthorizationPolicy":
		name = strings.TrimSuffix(strings.ToLower(gvk.Kind), "y") + "ies"
	}
	return c.api.Resource(gvk.GroupVersion().WithResource(name)).Namespace(o.GetNamespace())
}

// parse reads the objects of a file.
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
		if u.GetKind() == "Service" { // the API server gives it one: some are taken
			unstructured.RemoveNestedField(o, "spec", "clusterIP")
		}
		all = append(all, u)
	}
	return all, nil
}

// StatusWrites is how often the status of an object was written, by whomever, since the API server started: its own count.
// Errors are those of gauge.Scrape.
func (c *Cluster) StatusWrites(ctx context.Context) (n float64, err error) {
	client, err := rest.HTTPClientFor(c.plane.Config())
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	page, err := gauge.Scrape(ctx, client, "https://"+c.plane.Address()+"/metrics")
	for name, value := range page {
		written := strings.Contains(name, `verb="PUT"`) || strings.Contains(name, `verb="PATCH"`) || strings.Contains(name, `verb="APPLY"`)
		if strings.HasPrefix(name, "apiserver_request_total{") && strings.Contains(name, `subresource="status"`) && written {
			n += value
		}
	}
	return n, err
}
