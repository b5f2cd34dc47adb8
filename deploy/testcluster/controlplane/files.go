package controlplane

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// adminToken is the administrator's, of a server that only this machine reaches.
const adminToken = "admintoken"

// writeKeys makes the key that service-account tokens are signed with, and the administrator's token.
func writeKeys(dir string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	var all []error
	for name, content := range map[string][]byte{
		"sa.key":     pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		"sa.pub":     pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		"tokens.csv": []byte(adminToken + `,admin,1,"system:masters"` + "\n"),
	} {
		all = append(all, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return errors.Join(all...)
}

// writeKubeconfig writes the administrator's kubeconfig, with the certificate that the API server made for itself.
func (c *ControlPlane) writeKubeconfig() error {
	certificate, err := os.ReadFile(filepath.Join(c.dir, "certs", "apiserver.crt"))
	if err != nil {
		return err
	}
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"test": {Server: "https://" + c.address, CertificateAuthorityData: certificate}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"admin": {Token: adminToken}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "admin"}},
		CurrentContext: "test",
	}, c.Kubeconfig())
}

// applyCRDs makes the definitions of the kinds that the options name, and waits until they are served.
func (c *ControlPlane) applyCRDs(top string) error {
	for name, wanted := range map[string]bool{"istio": c.options.Istio, "gateway-api": c.options.GatewayAPI} {
		if !wanted {
			continue
		}
		file := filepath.Join(top, ".tools", "crds", name+".yaml")
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("no %s: run `make kube-tools` (%w)", filepath.Base(file), err)
		}
		// create: the annotation of apply would be longer than annotations may be.
		if _, err := c.kubectl(strings.NewReader(""), "create", "--validate=false", "-f", file); err != nil {
			return err
		}
	}
	if !c.options.Istio && !c.options.GatewayAPI {
		return nil
	}
	_, err := c.kubectl(strings.NewReader(""), "wait", "--for=condition=Established", "--timeout=120s", "crd", "--all")
	return err
}
