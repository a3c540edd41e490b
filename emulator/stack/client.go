package stack

import (
	"context"

	"github.com/fencepost/fencepost/shared/client"
)

// Client returns a client of the public paths for the account. All clients of the stack share connections.
func (s *Stack) Client(account string) (*client.Client, error) {
	return s.client(func(ctx context.Context) (string, error) { return s.Issuer.Token(ctx, account, PublicAudience) })
}

// UserClient returns a client of the public paths for the user.
func (s *Stack) UserClient(userID int64) (*client.Client, error) {
	return s.client(func(context.Context) (string, error) { return s.Users.UserToken(userID, UsersAudience) })
}

func (s *Stack) client(token func(context.Context) (string, error)) (*client.Client, error) {
	return client.New(client.Options{URL: s.URLMap.PublicURL(), Token: token, Transport: s.connections})
}
