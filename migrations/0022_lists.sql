-- Which node's answer made a change of a transaction, what the nodes answered to a broadcast, and lists of a user's
-- transfers by their last state.

-- +goose Up
-- +goose StatementBegin
set local lock_timeout = '5s';
-- node is the node whose observation of the chain led to the change. answers is the nodes' answers to the bytes that
-- were sent: the number of nodes if all that answered accepted them, otherwise a JSON list. Both are of this row alone.
alter table tx_history
  add column node    text,
  add column answers text;

-- As before, with these two. A commit gives them in a setting, for each tx_id, since managed_tx does not keep them. The
-- first statement of the commit that changes managed_tx uses the setting up.
create or replace function record_txs() returns trigger language plpgsql set enable_nestloop = off as $$
declare
  said jsonb := nullif(current_setting('fencepost.answers', true), '');
begin
  if tg_op = 'INSERT' then
    insert into tx_history (tx_id, at, state, sub_state, nonce, tx_hash, attempts, reason, block_hash, fencing_token)
    select tx_id, clock_timestamp(), state, sub_state, nonce, tx_hash, submit_attempts, last_error,
           receipt ->> 'blockHash', fencing_token
      from new_txs
     order by seq;
    return null;
  end if;
  if said is not null then
    perform set_config('fencepost.answers', '', true);
  end if;
  insert into tx_history (tx_id, at, from_state, state, sub_state, nonce, tx_hash, attempts, reason, block_hash, fencing_token, node, answers)
  select n.tx_id, clock_timestamp(), o.state, n.state, n.sub_state, n.nonce,
         case when n.tx_hash is distinct from o.tx_hash then coalesce(n.tx_hash, '') end,
         n.submit_attempts, n.last_error, n.receipt ->> 'blockHash', n.fencing_token,
         said -> n.tx_id::text ->> 'node', said -> n.tx_id::text ->> 'answers'
    from new_txs n
    join old_txs o using (tx_id)
   where (n.state, n.sub_state, n.nonce, n.tx_hash, n.submit_attempts, n.last_error, n.receipt ->> 'blockHash')
         is distinct from
         (o.state, o.sub_state, o.nonce, o.tx_hash, o.submit_attempts, o.last_error, o.receipt ->> 'blockHash')
   order by n.nonce, n.seq;
  return null;
end $$;

create or replace view tx_history_full as
select h.id, h.tx_id, coalesce(h.submitter, m.submitter) as submitter, h.at, h.from_state, h.state, h.sub_state, h.nonce,
       case when h.submitter is not null then h.tx_hash
            else (select nullif(p.tx_hash, '')
                    from tx_history p
                   where p.tx_id = h.tx_id and p.id <= h.id and (p.tx_hash is not null or p.submitter is not null)
                   order by p.id desc
                   limit 1) end as tx_hash,
       h.attempts, h.reason, h.block_hash, h.fencing_token, h.node, h.answers
  from tx_history h
  left join managed_tx m on m.tx_id = h.tx_id;

-- The last state of a transfer; null while it is open. It changes once, together with open, so that no transition
-- between open states writes an index. The column rewrites the table.
alter table transfers_tb add column ended smallint generated always as (case when state in (40, -10, -30) then state end) stored;
create index transfers_ended_of_user on transfers_tb (user_id, ended, created_at, transfer_id) where ended is not null;
-- +goose StatementEnd
