from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from supervisord_llm.client import ApiError
from supervisord_llm.config.keys import append_line, key_line
from supervisord_llm.events import ConfigRejected, ConfigReloaded
from tests.api.house import House, house


async def status_with(made: House, key: str) -> int:
    """Present a key for a route that needs one; the status."""
    transport = httpx.AsyncHTTPTransport(uds=str(made.socket))
    async with httpx.AsyncClient(transport=transport, base_url="http://daemon") as http:
        reply = await http.post("/v1/sessions/s/reset", headers={"authorization": f"Bearer {key}"})
        return reply.status_code


async def test_keys_come_and_go_with_the_configuration(tmp_path: Path) -> None:
    """A reload tells whose keys changed, by names; a broken file changes nothing."""
    keys = tmp_path / "keys"
    append_line(keys, key_line("alice", "sllm-a"))
    async with house(tmp_path, listen=f'api_keys = "{keys}"', ready=False) as made:
        assert [200, 401] == [await status_with(made, key) for key in ("sllm-a", "sllm-b")]

        keys.write_text(key_line("bob", "sllm-b"))
        assert 200 == await status_with(made, "sllm-a"), "not before it is read again"
        change = await made.client.reload_config()
        expected = [f"API keys in {keys}: alice removed, bob added"]
        assert expected == change.differences == made.all(ConfigReloaded)[-1].differences
        assert [401, 200] == [await status_with(made, key) for key in ("sllm-a", "sllm-b")]

        keys.write_text("sllm-secret")
        with pytest.raises(ApiError, match=f"cannot use line 1 of {keys}"):
            await made.client.reload_config()
        [rejected] = made.all(ConfigRejected)
        assert "secret" not in rejected.error
        assert [401, 200] == [await status_with(made, key) for key in ("sllm-a", "sllm-b")]

        keys.write_text("")
        change = await made.client.reload_config()
        assert [f"API keys in {keys}: bob removed"] == change.differences
        assert [f"nobody has a key in {keys}"] == [
            warning.partition(",")[0] for warning in change.warnings
        ]
        assert 401 == await status_with(made, "sllm-b"), "the last key can be withdrawn, too"
