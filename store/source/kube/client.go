package kube

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/apiserver/listwatch"
)

// Limits of requests to one API server, per second and as a burst. They are the defaults of istiod's --kubernetesApiQPS
// and --kubernetesApiBurst.
const (
	requestRate  = 80
	requestBurst = 160
)

// clients contains the clients of one API server. Typed clients use protobuf, and are for built-in kinds. The dynamic
// client uses JSON, and is for other kinds.
type clients struct {
	typed   map[schema.GroupVersion]rest.Interface
	dynamic dynamic.Interface
}

// connect returns clients of an API server. It sends no request. If config is nil, it uses the kubeconfig at the given
// path. If config is nil and the path is empty, it uses the service account of this process's Pod. The clients follow
// no redirects. Errors: the kubeconfig or the service account cannot be loaded, or a certificate, credential or TLS
// setting is unusable.
func connect(config *rest.Config, kubeconfig string) (*clients, error) {
	var err error
	if config == nil {
		config, err = apiserver.Config(kubeconfig)
	}
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Wrap(listwatch.Transport)
	web, err := apiserver.HTTPClient(config)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst, config.WarningHandler = requestRate, requestBurst, rest.NoWarnings{}
	scheme := runtime.NewScheme()
	c := &clients{typed: map[schema.GroupVersion]rest.Interface{}}
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, rbacv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	for _, gv := range []schema.GroupVersion{corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, rbacv1.SchemeGroupVersion} {
		typed := rest.CopyConfig(config)
		typed.GroupVersion, typed.APIPath = &gv, "/apis"
		if gv.Group == "" {
			typed.APIPath = "/api"
		}
		typed.ContentType, typed.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
		typed.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		if c.typed[gv], err = rest.RESTClientForConfigAndClient(typed, web); err != nil {
			return nil, err
		}
	}
	c.dynamic, err = dynamic.NewForConfigAndClient(config, web)
	return c, err
}

// get requests a path of the API server as JSON, and decodes the response into the given value. If the value is nil,
// the response is discarded. Errors are those of the request and of decoding.
func (c *clients) get(ctx context.Context, path string, into any) error {
	answer := c.typed[corev1.SchemeGroupVersion].Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx)
	raw, err := answer.Raw()
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
