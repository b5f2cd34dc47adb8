package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/apiserver/listwatch"
)

// Check requests one object of each needed built-in kind from the API server, to test the credentials of this Source.
// It returns nil if every list succeeds, and otherwise an error that names the first kind that cannot be listed. It
// blocks for at most Config.Answer, and must not be called while Run is running.
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
