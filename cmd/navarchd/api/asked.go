package api

import (
	"context"
	"errors"
	"net/http"

	"navarch.io/navarch/cmd/navarchd/api/ask"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
)

// Asked answers another replica's question with the part of this process. The Reply of a failure has an HTTP status.
// The status is 501 for an unknown endpoint, and for an endpoint about one process. It is 403 for a tenant's question
// about the whole system, and 400 for a wrong parameter. Other failures have the statuses that direct callers get.
func (a *API) Asked(ctx context.Context, question ask.Question) ask.Reply {
	e := endpointOf(question.Endpoint)
	if e == nil || e.alone {
		return ask.Failed(http.StatusNotImplemented, errors.New("its version does not know this endpoint"))
	}
	c := question.Caller
	who := a.Rules.Forwarded(c.Name, c.Tenant, c.All)
	if who.Sees != nil && !e.tenants {
		return ask.Failed(http.StatusForbidden, errors.New(authz.ForSystem))
	}
	if _, err := e.check(question.Query); err != nil {
		return ask.Failed(http.StatusBadRequest, err)
	}
	made, read, err := a.turn(ctx, e, who)
	if err != nil {
		return ask.Failed(statusOf(err), err)
	}
	defer read() // before the reply is sent: it is bounded, and a replica reads it
	defer made()
	if e.posted != nil {
		release, err := a.Pages.PlanRoom(who, len(question.Body))
		if err != nil {
			return ask.Failed(http.StatusServiceUnavailable, err)
		}
		defer release()
	}
	return a.part(ctx, e, who, question.Query, question.Body)
}
