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

// Options lists the settings of an untrusted kubeconfig that operators can allow in addition to inline data. The value
// of each setting is the path of a file in this process's file system. The names are those of istiod
// (PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS). Callers must not change Options.
var Options = []string{"clientKey", "clientCertificate", "tokenFile"}

// CheckOptions returns an error for the first name that is not in Options, else nil. Istio's options exec, gcp, azure
// and openstack are errors too, because a Secret must not make this process run programs.
func CheckOptions(names []string) error {
	for _, name := range names {
		if !slices.Contains(Options, name) {
			return fmt.Errorf("%q is not supported: want some of %s", name, strings.Join(Options, ","))
		}
	}
	return nil
}

// maxInline bounds a kubeconfig in bytes. Secrets have the same bound
// (https://kubernetes.io/docs/concepts/configuration/secret/#restriction-data-size).
const maxInline = 1 << 20

// Inline returns the client configuration of the current context of an untrusted kubeconfig, such as the value of a
// Secret. The caller owns the result. Inline uses only inline data: a token, a client certificate with its key, a name
// with a password, the id-token of the provider oidc, and the CA. The parameter allowed lists the Options that may be
// used too. Requests with the result use no HTTP proxy, not even one of the environment.
//
// Inline returns an error if the context has other settings. The error names them: files of this process, programs,
// other providers, proxies, impersonation, or a server without verification. Inline also returns an error if the
// kubeconfig is empty, does not parse or has more than 1 MiB. The current context, its cluster and its user must exist.
// The server must be an https URL without a user. The user must have a credential. Errors contain no value of the
// kubeconfig. Inline reads no file and sends no request.
func Inline(kubeconfig []byte, allowed []string) (*rest.Config, error) {
	if len(kubeconfig) == 0 || len(kubeconfig) > maxInline {
		return nil, fmt.Errorf("the kubeconfig has %d bytes; 1 to %d are accepted", len(kubeconfig), maxInline)
	}
	all, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, errors.New("the kubeconfig cannot be parsed") // the parser's error quotes the kubeconfig
	}
	context := all.Contexts[all.CurrentContext]
	if context == nil {
		return nil, errors.New("the kubeconfig lacks the context that current-context names")
	}
	cluster, user := all.Clusters[context.Cluster], all.AuthInfos[context.AuthInfo]
	if cluster == nil || user == nil {
		return nil, errors.New("the kubeconfig lacks the cluster or the user of its current context")
	}
	refused := append(refusedCluster(cluster), refusedUser(user, allowed)...)
	if len(refused) > 0 {
		return nil, fmt.Errorf("the kubeconfig has settings other than inline data: not allowed are %s", strings.Join(refused, ", "))
	}
	server, _, err := rest.DefaultServerUrlFor(&rest.Config{Host: cluster.Server})
	if err != nil || server.Scheme != "https" || server.User != nil {
		return nil, errors.New("the server of the kubeconfig must be an https URL without a user")
	}
	// Only these settings take effect.
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

// refusedCluster names the refused settings of a cluster.
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

// refusedUser names the refused settings of a user.
func refusedUser(u *api.AuthInfo, allowed []string) (all []string) {
	for name, is := range map[string]bool{
		"client-key":         u.ClientKey != "" && !slices.Contains(allowed, "clientKey"),
		"client-certificate": u.ClientCertificate != "" && !slices.Contains(allowed, "clientCertificate"),
		"tokenFile":          u.TokenFile != "" && !slices.Contains(allowed, "tokenFile"),
		"exec":               u.Exec != nil,
		"as":                 u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups)+len(u.ImpersonateUserExtra) > 0,
		// A refresh-token would be sent to a URL of the kubeconfig.
		"auth-provider": u.AuthProvider != nil && (u.AuthProvider.Name != "oidc" || u.AuthProvider.Config["id-token"] == ""),
	} {
		if is {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}
