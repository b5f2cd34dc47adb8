package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/apiserver"
)

// source returns the source that the flags select: the cluster with --kubeconfig, else the data directory. It fails if
// the kubeconfig cannot be used.
func (o *vmOptions) source() (vmSource, error) {
	if o.kubeconfig == "" {
		return vmFiles{o}, nil
	}
	api, err := apiserver.New(o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return vmCluster{o, api}, nil
}

// vmFiles reads a mesh without a cluster from navarchd's data directory.
type vmFiles struct{ *vmOptions }

func (vmFiles) group(context.Context, string, string) ([]byte, error) {
	return nil, errors.New("want --file")
}

func (f vmFiles) mesh(context.Context) ([]byte, error) {
	if f.meshConfig == "" {
		return nil, nil
	}
	return os.ReadFile(f.meshConfig)
}

func (f vmFiles) roots(context.Context, string) ([]byte, error) {
	return os.ReadFile(filepath.Join(f.dataDir, "root-cert.pem"))
}

func (f vmFiles) token(_ context.Context, namespace, account string, ttl time.Duration) (string, error) {
	issuer, err := attest.OpenLocal(f.dataDir)
	if err != nil {
		return "", err
	}
	token, _, err := issuer.MintBound(namespace, account, "", "istio-ca", ttl)
	return token, err
}

func (vmFiles) ingress(context.Context) string { return "" }

// vmCluster reads a mesh in Kubernetes.
type vmCluster struct {
	*vmOptions
	api *apiserver.Client
}

func (c vmCluster) group(ctx context.Context, namespace, name string) ([]byte, error) {
	return c.api.Get(ctx, "/apis/networking.istio.io/v1beta1/namespaces/"+
		url.PathEscape(namespace)+"/workloadgroups/"+url.PathEscape(name), apiserver.MaxAnswer)
}

// configMap returns the value of one key of a ConfigMap. It fails if the ConfigMap or the key is missing.
func (c vmCluster) configMap(ctx context.Context, namespace, name, key string) ([]byte, error) {
	var m struct {
		Data map[string]string `json:"data"`
	}
	if err := c.api.Do(ctx, http.MethodGet, "/api/v1/namespaces/"+
		url.PathEscape(namespace)+"/configmaps/"+url.PathEscape(name), nil, &m); err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w", namespace, name, err)
	}
	text, there := m.Data[key]
	if !there {
		return nil, fmt.Errorf("ConfigMap %s/%s has no %s", namespace, name, key)
	}
	return []byte(text), nil
}

func (c vmCluster) mesh(ctx context.Context) ([]byte, error) {
	return c.configMap(ctx, c.system, inject.NameOf("istio", c.revision), "mesh")
}

func (c vmCluster) roots(ctx context.Context, namespace string) ([]byte, error) {
	return c.configMap(ctx, namespace, "istio-ca-root-cert", "root-cert.pem")
}

func (c vmCluster) token(ctx context.Context, namespace, account string, ttl time.Duration) (string, error) {
	request := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"spec": map[string]any{"audiences": []string{"istio-ca"}, "expirationSeconds": int64(ttl / time.Second)}}
	var answer struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/serviceaccounts/" + url.PathEscape(account) + "/token"
	if err := c.api.Do(ctx, http.MethodPost, path, request, &answer); err != nil {
		return "", err
	}
	return answer.Status.Token, nil
}

// ingress returns the IP address of the first entry of the Service's load balancer, else the Service's first external
// IP. The result is empty if neither is known, or if the Service cannot be read.
func (c vmCluster) ingress(ctx context.Context) string {
	name, namespace, _ := strings.Cut(c.ingressService, ".")
	if namespace == "" {
		namespace = c.system
	}
	var service struct {
		Spec struct {
			ExternalIPs []string `json:"externalIPs"`
		} `json:"spec"`
		Status struct {
			LoadBalancer struct {
				Ingress []struct {
					IP string `json:"ip"`
				} `json:"ingress"`
			} `json:"loadBalancer"`
		} `json:"status"`
	}
	if err := c.api.Do(ctx, http.MethodGet, "/api/v1/namespaces/"+
		url.PathEscape(namespace)+"/services/"+url.PathEscape(name), nil, &service); err != nil {
		return "" // the caller reports that no address is known
	}
	if all := service.Status.LoadBalancer.Ingress; len(all) > 0 && all[0].IP != "" {
		return all[0].IP
	}
	if len(service.Spec.ExternalIPs) > 0 {
		return service.Spec.ExternalIPs[0]
	}
	return ""
}
