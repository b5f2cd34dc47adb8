// Package node is the kubelet of one node of the cluster of processes. It creates the Node and renews its lease, runs
// the Pods that are bound to it as processes in namespaces, writes their status, and serves logs, exec and
// port-forward.
//
// Owns: its Node and lease; the status of its Pods; their processes, namespaces and folders. Reads: Pods, ConfigMaps,
// Secrets, Services and claims of volumes, through informers that all nodes share. Never: acts on another node's Pods;
// pulls images.
package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"navarch.io/navarch/deploy/testcluster/image"
	"navarch.io/navarch/deploy/testcluster/metrics"
	"navarch.io/navarch/deploy/testcluster/netns"
	"navarch.io/navarch/deploy/testcluster/podenv"
	"navarch.io/navarch/store/loop"
)

// Config contains the settings of a node.
type Config struct {
	Name    string
	Zone    string // topology.kubernetes.io/zone
	Network *netns.Node
	Client  kubernetes.Interface
	Objects *Objects // already synchronised
	Images  image.Table
	Dir     string // a folder of its own
	Volumes string // folder of persistent volumes by name, shared by all nodes
	DNS     string // cluster IP of the cluster's DNS
	TLS     *tls.Config
	Log     *slog.Logger
}

// Node is one node.
type Node struct {
	Config
	from podenv.Source
	mu   sync.Mutex
	pods map[types.UID]*pod
	all  sync.WaitGroup
}

// New returns a node, which does nothing until Run.
func New(c Config) *Node {
	maps := listers.NewConfigMapLister(c.Objects.ConfigMaps.GetIndexer())
	secrets := listers.NewSecretLister(c.Objects.Secrets.GetIndexer())
	services := listers.NewServiceLister(c.Objects.Services.GetIndexer())
	return &Node{Config: c, pods: map[types.UID]*pod{}, from: podenv.Source{
		ConfigMap: func(namespace, name string) (*corev1.ConfigMap, error) { return maps.ConfigMaps(namespace).Get(name) },
		Secret:    func(namespace, name string) (*corev1.Secret, error) { return secrets.Secrets(namespace).Get(name) },
		Services: func(namespace string) []*corev1.Service {
			all, _ := services.Services(namespace).List(labels.Everything()) // from memory, without errors
			return all
		},
	}}
}

// Run runs the node until ctx ends. Then it kills the node's Pods and leaves their status unchanged. Errors: the API
// server refuses the node, an informer has stopped, or the node's port cannot be served.
func (n *Node) Run(ctx context.Context) error {
	if err := n.register(ctx); err != nil {
		return fmt.Errorf("register node %s: %w", n.Name, err)
	}
	defer n.all.Wait()
	if err := n.watch(ctx); err != nil {
		return err
	}
	return loop.Run(ctx, loop.Task{Name: "heartbeat", Run: n.heartbeat}, loop.Task{Name: "server", Run: n.serve})
}

// watch passes Pods and the objects that they refer to to the Pods' loops.
func (n *Node) watch(ctx context.Context) error {
	pods := func(o any) {
		if p, ok := o.(*corev1.Pod); ok && p.Spec.NodeName == n.Name {
			n.see(ctx, p)
		}
	}
	if _, err := n.Objects.Pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: pods,
		UpdateFunc: func(_, o any) { pods(o) }, DeleteFunc: n.gone}); err != nil {
		return err
	}
	for _, i := range []cache.SharedIndexInformer{n.Objects.ConfigMaps, n.Objects.Secrets, n.Objects.Claims} {
		poke := func(o any) {
			if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = d.Obj
			}
			if m, ok := o.(interface{ GetNamespace() string }); ok {
				n.poke(m.GetNamespace())
			}
		}
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: poke,
			UpdateFunc: func(_, o any) { poke(o) }, DeleteFunc: poke}); err != nil {
			return err
		}
	}
	return nil
}

// see processes a version of a Pod of this node.
func (n *Node) see(ctx context.Context, object *corev1.Pod) {
	n.mu.Lock()
	p, ok := n.pods[object.UID]
	if !ok {
		if terminal(object.Status.Phase) && object.DeletionTimestamp == nil || ctx.Err() != nil {
			n.mu.Unlock()
			return
		}
		p = newPod(n, object)
		n.pods[object.UID] = p
		n.all.Go(func() {
			p.run(ctx)
			n.mu.Lock()
			defer n.mu.Unlock()
			delete(n.pods, object.UID)
		})
	}
	n.mu.Unlock()
	p.versions.Put(version{object: object})
}

// gone processes the deletion of a Pod's object.
func (n *Node) gone(o any) {
	if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = d.Obj
	}
	object, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if p, ok := n.pods[object.UID]; ok {
		p.versions.Put(version{object: object, gone: true})
	}
}

// poke makes the Pods of a namespace update their volumes.
func (n *Node) poke(namespace string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		if p.namespace == namespace {
			p.refresh.Put(struct{}{})
		}
	}
}

// find returns a Pod by name; nil: it is not on this node.
func (n *Node) find(namespace, name string) *pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		if p.namespace == namespace && p.name == name {
			return p
		}
	}
	return nil
}

// Running returns the running containers.
func (n *Node) Running() []metrics.Running {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []metrics.Running
	for _, p := range n.pods {
		network := p.network.Load()
		if network == nil {
			continue
		}
		p.mu.Lock()
		for name, r := range p.runs {
			if r.current != nil {
				all = append(all, metrics.Running{Pod: p.object.Load(), IP: network.addresses[0].String(), Container: name, PID: r.current.PID()})
			}
		}
		p.mu.Unlock()
	}
	return all
}

func terminal(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

// patience is the time limit of one request to the API server.
const patience = 10 * time.Second
