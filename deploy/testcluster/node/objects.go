package node

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Objects are the informers of the whole cluster that nodes share. (client-go's factory would link the informers of
// every kind.)
type Objects struct {
	Pods, ConfigMaps, Secrets, Services, Claims cache.SharedIndexInformer
}

// Follow starts informers that run until ctx ends. It returns once all have synchronised; the error reports that ctx
// ended before.
func Follow(ctx context.Context, client kubernetes.Interface) (*Objects, error) {
	follow := func(resource string, one runtime.Object) cache.SharedIndexInformer {
		source := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), resource, corev1.NamespaceAll, fields.Everything())
		informer := cache.NewSharedIndexInformer(source, one, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		go informer.Run(ctx.Done())
		return informer
	}
	o := &Objects{Pods: follow("pods", &corev1.Pod{}),
		ConfigMaps: follow("configmaps", &corev1.ConfigMap{}), Secrets: follow("secrets", &corev1.Secret{}),
		Services: follow("services", &corev1.Service{}), Claims: follow("persistentvolumeclaims", &corev1.PersistentVolumeClaim{})}
	if !cache.WaitForCacheSync(ctx.Done(), o.Pods.HasSynced,
		o.ConfigMaps.HasSynced, o.Secrets.HasSynced, o.Services.HasSynced, o.Claims.HasSynced) {
		return nil, errors.Join(errors.New("objects of the cluster were not read"), ctx.Err())
	}
	return o, nil
}
