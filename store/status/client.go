package status

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/apiserver/listwatch"
)

// manager is this program's name in managedFields.
const manager = "navarchd"

// configOf reads a kubeconfig. An empty path stands for the service account of this process's Pod. Clients of the
// configuration have no rate limit, because Writers limit their own rate (Rate).
func configOf(kubeconfig string) (*rest.Config, error) {
	config, err := apiserver.Config(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = manager
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	config.Wrap(listwatch.Transport)
	return config, nil
}

// dynamicOf returns a client for objects of any kind. It sends no request.
func dynamicOf(kubeconfig string) (dynamic.Interface, error) {
	config, err := configOf(kubeconfig)
	if err != nil {
		return nil, err
	}
	return dynamic.NewForConfig(config)
}

// listWatch returns a ListWatch over objects.
func listWatch(objects dynamic.ResourceInterface) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return objects.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return objects.Watch(ctx, o)
		},
	}
}
