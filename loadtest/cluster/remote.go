package cluster

import (
	"context"
	"encoding/json"
	"maps"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Address contains the address of a cluster's API server and the administrator's credentials.
type Address struct{ config *rest.Config }

// Address returns the address of this cluster.
func (c *Cluster) Address() Address { return Address{c.plane.Config()} }

// Remote publishes other clusters to the control plane in this one. It writes one Secret with a kubeconfig for each
// cluster, as `navarchctl create-remote-secret` prints it, and replaces a Secret of that name. Errors: files that an
// address refers to cannot be read, or that of Put.
func (c *Cluster) Remote(ctx context.Context, secret string, clusters map[string]Address) error {
	kubeconfigs := map[string][]byte{}
	for name, of := range clusters {
		text, err := kubeconfig(of.config)
		if err != nil {
			return err
		}
		kubeconfigs[name] = text
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1",
		"kind": "Secret", "metadata": map[string]any{"name": secret, "namespace": "istio-system",
			"labels": map[string]string{"istio/multiCluster": "true"}}, "data": kubeconfigs})
	if err != nil {
		return err
	}
	_, err = c.Put(ctx, maps.All(map[string][]byte{secret: text}))
	return err
}

// kubeconfig returns a kubeconfig with inline data.
func kubeconfig(config *rest.Config) ([]byte, error) {
	config = rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "c",
	})
}
