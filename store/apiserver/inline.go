package apiserver

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Options are what a kubeconfig that somebody else wrote may have beside inline data, by the names of istiod
// (PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS).
var Options = []string{"clientKey", "clientCertificate", "tokenFile"}

// CheckOptions says which of these names is none of Options. Istio's exec and providers (gcp, azure, openstack) are not there: nothing is
// executed on the word of a Secret. nil: all are.
func CheckOptions(names []string) error {
	for _, name := range names {
		if !slices.Contains(Options, name) {
			return fmt.Errorf("%q is not supported: want some of %s", name, strings.Join(Options, ","))
		}
	}
	return nil
}

// maxInline bounds a kubeconfig, in bytes: a Secret has no more (https://kubernetes.io/docs/concepts/configuration/secret/#restriction-data-size).
const maxInline = 1 << 20

// Inline reads a kubeconfig that somebody else wrote, such as the value of a Secret, for its current context. Only inline data counts: a token, a
// client certificate with its key, a name with a password, the id-token of the provider oidc, the CA. What would have this process read its own
// files, run a program, send requests by another way or believe an unverified server is refused by its name, but for the allowed Options. No
// file is read, and nothing is asked. Errors repeat no value of the kubeconfig.
func Inline(kubeconfig []byte, allowed []string) (*rest.Config, error) {
	if len(kubeconfig) == 0 || len(kubeconfig) > maxInline {
		return nil, fmt.Errorf("the kubeconfig has %d bytes; 1 to %d are accepted", len(kubeconfig), maxInline)
	}
	all, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, errors.New("the kubeconfig cannot be parsed") // the parser's error quotes it
	}
	context := all.Contexts[all.CurrentContext]
	if context == nil {
		return nil, errors.New("current-context of the kubeconfig names no context")
	}
	cluster, user := all.Clusters[context.Cluster], all.AuthInfos[context.AuthInfo]
	if cluster == nil || user == nil {
		return nil, errors.New("the current context of the kubeconfig names no cluster, or no user")
	}
	refused := append(refusedCluster(cluster), refusedUser(user, allowed)...)
	if len(refused) > 0 {
		return nil, fmt.Errorf("of a kubeconfig only inline data counts: not allowed are %s", strings.Join(refused, ", "))
	}
	server, _, err := rest.DefaultServerUrlFor(&rest.Config{Host: cluster.Server})
	if err != nil || server.Scheme != "https" || server.User != nil {
		return nil, errors.New("the server of the kubeconfig is no https URL")
	}
	// What is not named here does not count.
	config := &rest.Config{Host: cluster.Server, Username: user.Username, Password: user.Password, BearerToken: user.Token,
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: cluster.TLSServerName, CAData: cluster.CertificateAuthorityData, CertData: user.ClientCertificateData,
			KeyData:  user.ClientKeyData,
			CertFile: user.ClientCertificate, KeyFile: user.ClientKey}, BearerTokenFile: user.TokenFile}
	if user.AuthProvider != nil {
		config.BearerToken = user.AuthProvider.Config["id-token"]
	}
	if config.Proxy = direct; config.BearerToken == "" && config.BearerTokenFile == "" && config.Username == "" &&
		len(config.CertData)+len(config.CertFile) == 0 {
		return nil, errors.New("the user of the kubeconfig has no credential")
	}
	return config, nil
}

// refusedCluster names what a kubeconfig says of a cluster that is refused.
func refusedCluster(c *api.Cluster) (all []string) {
	for name, is := range map[string]bool{"certificate-authority": c.CertificateAuthority != "",
		"insecure-skip-tls-verify": c.InsecureSkipTLSVerify, "proxy-url": c.ProxyURL != ""} {
		if is {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// refusedUser names what a kubeconfig says of a user that is refused.
func refusedUser(u *api.AuthInfo, allowed []string) (all []string) {
	for name, is := range map[string]bool{
		"client-key":         u.ClientKey != "" && !slices.Contains(allowed, "clientKey"),
		"client-certificate": u.ClientCertificate != "" && !slices.Contains(allowed, "clientCertificate"),
		"tokenFile":          u.TokenFile != "" && !slices.Contains(allowed, "tokenFile"),
		"exec":               u.Exec != nil,
		"as":                 u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups)+len(u.ImpersonateUserExtra) > 0,
		// no refresh-token: that is sent to a URL of the kubeconfig's
		"auth-provider": u.AuthProvider != nil && (u.AuthProvider.Name != "oidc" || u.AuthProvider.Config["id-token"] == ""),
	} {
		if is {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}
