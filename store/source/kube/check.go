package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/apiserver/listwatch"
)

// Check tests the credentials of this Source. It lists one object of each built-in kind that the Source must be able to
// read. It returns nil if every list succeeds. The error names the first kind that cannot be listed. It blocks for at
// most Config.Answer, or until ctx ends. It must not be called while Run is running.
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
