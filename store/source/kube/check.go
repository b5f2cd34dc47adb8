package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/apiserver/listwatch"
)

// Check asks the API server for one object of each of Kubernetes' own kinds that have to be read, before anything is followed: nil says that all of
// them can be listed with the credentials of this Source. It takes no longer than Answer, and may be called while Run does not run.
// An error names the first that cannot.
func (s *Source) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Answer, listwatch.ErrNoAnswer)
	defer cancel()
	for _, k := range append([]kind{namespaces}, s.builtIn()...) {
		if s.need(k) != needed {
			continue
		}
		if _, err := s.plain(k).ListWithContextFunc(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return fmt.Errorf("%s cannot be listed: %s", k.kind, brief(err))
		}
	}
	return nil
}
