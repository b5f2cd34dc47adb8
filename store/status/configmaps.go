package status

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/loop"
)

// ConfigMaps are those of one name, in all namespaces.
type ConfigMaps struct {
	name   string
	client rest.Interface
}

var _ API[corev1.ConfigMap] = (*ConfigMaps)(nil)

// NewConfigMaps reads a kubeconfig; of an empty path the service account of the Pod that this process is in. Nothing is asked.
func NewConfigMaps(kubeconfig, name string) (*ConfigMaps, error) {
	config, err := apiserver.Config(kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config.UserAgent = "navarchd" // managedFields name it
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	config.GroupVersion, config.APIPath = &corev1.SchemeGroupVersion, "/api"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	return &ConfigMaps{name: name, client: client}, err
}

// relist is how long a watch is believed: after that everything is listed again.
const relist = 10 * time.Minute

// Follow implements API.
func (c *ConfigMaps) Follow(ctx context.Context, s Seen[corev1.ConfigMap], failed func(error)) error {
	ctx = klog.NewContext(ctx, klog.Logger{}) // what goes wrong is said to failed
	choose := func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + c.name }
	lw := cache.NewFilteredListWatchFromClient(c.client, "configmaps", metav1.NamespaceAll, choose)
	for ctx.Err() == nil {
		session, cancel := context.WithTimeout(ctx, relist)
		reflector := cache.NewReflectorWithOptions(lw, &corev1.ConfigMap{}, receiver{s, failed}, cache.ReflectorOptions{Logger: &klog.Logger{}, Name: "configmaps"})
		err := reflector.ListAndWatchWithContext(session)
		ended := session.Err() != nil
		if cancel(); ended {
			continue
		}
		if err != nil {
			failed(err)
		}
		_ = loop.Pause(ctx, time.Second)
	}
	return ctx.Err()
}

// receiver is what the Reflector puts objects into.
type receiver struct {
	seen   Seen[corev1.ConfigMap]
	failed func(error)
}

func (r receiver) Add(o any) error { return r.Update(o) }

func (r receiver) Update(o any) error {
	if m, is := o.(*corev1.ConfigMap); is {
		r.seen.Observe(Key{m.Namespace, m.Name}, found(m))
	}
	return nil
}

func (r receiver) Delete(o any) error {
	if m, is := o.(*corev1.ConfigMap); is {
		gone := found(m) // as of its deletion
		gone.Object = nil
		r.seen.Observe(Key{m.Namespace, m.Name}, gone)
	}
	return nil
}

func (r receiver) Replace(list []any, _ string) error {
	all := make(map[Key]Found[corev1.ConfigMap], len(list))
	for _, o := range list {
		if m, is := o.(*corev1.ConfigMap); is {
			all[Key{m.Namespace, m.Name}] = found(m)
		}
	}
	r.failed(nil)
	r.seen.Replace(all)
	return nil
}

func (r receiver) Resync() error { return nil }

// found keeps of managedFields who wrote last. It changes what it is given.
func found(m *corev1.ConfigMap) Found[corev1.ConfigMap] {
	f := Found[corev1.ConfigMap]{Object: m}
	if n, err := strconv.ParseUint(m.ResourceVersion, 10, 64); err == nil {
		f.Version = Version(n)
	}
	var last time.Time
	for _, e := range m.ManagedFields {
		if e.Time != nil && !e.Time.Time.Before(last) {
			f.By, last = e.Manager, e.Time.Time
		}
	}
	m.ManagedFields = nil
	return f
}

// Get implements API.
func (c *ConfigMaps) Get(ctx context.Context, k Key) (Found[corev1.ConfigMap], error) {
	out := &corev1.ConfigMap{}
	err := c.client.Get().Namespace(k.Namespace).Resource("configmaps").Name(k.Name).Do(ctx).Into(out)
	if apierrors.IsNotFound(err) {
		return Found[corev1.ConfigMap]{}, nil
	}
	return found(out), err
}

// Write implements API.
func (c *ConfigMaps) Write(ctx context.Context, k Key, o *corev1.ConfigMap) (Found[corev1.ConfigMap], error) {
	request := c.client.Post()
	if o.ResourceVersion != "" {
		request = c.client.Put().Name(k.Name)
	}
	out := &corev1.ConfigMap{}
	err := request.Namespace(k.Namespace).Resource("configmaps").Body(o).Do(ctx).Into(out)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || o.ResourceVersion != "" && apierrors.IsNotFound(err) {
		return Found[corev1.ConfigMap]{}, fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return found(out), err
}
